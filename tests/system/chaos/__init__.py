"""Three real devices, programs and faults at random, and an account of every content that was saved.

`record` keeps what programs did and what was found wrong; `world` is the devices, their network and clouds;
`programs`, `pairs`, `bank` and `repository` are what runs on the devices; `faults` is what happens to them;
`looks` is what other devices see meanwhile; `oracle` and `agreement` judge when all is healed; `life` puts
it together. `python -m tests.system.chaos SEED [SECONDS]` lives through one.
"""
