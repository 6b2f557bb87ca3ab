"""Hybris over packs: seal, pack, disperse, read back, and know which cloud to blame."""
