"""Places that are, or may become, clouds of a volume: marked, tried, refused."""
