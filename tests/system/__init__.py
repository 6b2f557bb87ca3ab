"""Real mounts, driven only through the `hybrisfs` command."""
