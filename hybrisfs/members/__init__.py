"""Who belongs to a volume, and who may do what: a pure function of the registers."""
