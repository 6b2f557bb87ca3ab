"""Parcels: files for people without the program, on one cloud, behind a link that ends."""
