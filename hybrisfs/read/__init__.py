"""Bytes on their way in: fetched, kept as cache, pinned, evicted."""
