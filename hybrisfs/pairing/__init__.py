"""Pairing: a one-time code lets a new device into a volume, over the local network or the clouds alone.

`code` is what the person carries over, `messages`, `handshake` and `protocol` are what the devices say to
each other (sans-IO), `mailbox` and `lan` carry it, `exchange` and `session` drive it.
"""
