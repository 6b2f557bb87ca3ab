"""Background work of a volume: commit, publish, pack and upload, ship the log, make room."""
