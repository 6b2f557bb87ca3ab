"""How a device comes to have a volume: created, joined, recovered, rebuilt."""
