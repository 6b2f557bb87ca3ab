"""The direct channel between devices: TLS 1.3, both sides pinned to their device keys, no server in between.

`PeerService` finds the other members of a volume (`discovery`, configured addresses), keeps one link with
each (`connector`, `handshakes`, `service`), exchanges updates as they happen, passes beacons on, and fetches
and serves chunks (`link`). It knows the volume through `PeerCallbacks` only. The formats are in `tls`,
`frames` and `discovery`.
"""
