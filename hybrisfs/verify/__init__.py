"""Fsck: the state compared with the log, the rules and the clouds."""
