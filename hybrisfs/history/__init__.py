"""How the clouds of a volume did over the last hour, day and month, in bounded memory.

`ring` keeps what was counted per interval, `cloud` the rings and the month of one cloud, `volume` all clouds
of a volume and their file. Nobody in here owns a thread or a clock.
"""
