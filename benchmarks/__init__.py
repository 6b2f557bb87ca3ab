"""Every performance claim, measured beside its peers in one run. Nothing here asserts; it reports."""
