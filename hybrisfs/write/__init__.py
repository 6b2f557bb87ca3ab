"""Bytes and names on their way out: commit, cut, chunk, sign, pack, place, ship, relay."""
