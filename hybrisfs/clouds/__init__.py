"""The clouds of an open volume: which there are, and that each has what it should."""
