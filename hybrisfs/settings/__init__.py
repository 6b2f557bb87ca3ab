"""The settings of a volume, and what of them governs transfers."""
