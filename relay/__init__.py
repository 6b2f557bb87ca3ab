"""A relay: keeps sealed objects for devices, and connects devices that cannot reach each other.

It has no key of any volume. Devices know it as a cloud (`backends.relay`), which they believe as little as
any other, and as a way to each other (`hybrisfs.peers.lines`), on which their own TLS proves who is there.
"""
