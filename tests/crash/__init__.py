"""Death at every durable step: a recorded life of a volume, cut off after each write, sync and rename."""
