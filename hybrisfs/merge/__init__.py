"""The visible tree is a pure function of the registers: the same on all devices, however updates come."""
