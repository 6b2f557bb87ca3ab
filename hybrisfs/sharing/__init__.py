"""The part of an open volume that it shares with other devices: members, roles, what comes in."""
