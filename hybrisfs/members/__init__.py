"""The devices that belong to a volume, and their rights: a pure function of the registers."""
