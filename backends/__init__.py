"""Clouds: one small class per kind of object store, behind the interface in `backends.store`."""
