"""The `hybrisfs` command: argument parsing and output, nothing else. Talks to the daemon only."""
