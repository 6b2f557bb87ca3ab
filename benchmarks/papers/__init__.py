"""Experiments of the five papers, one command each, and what the papers found: a JSON file for each paper."""
