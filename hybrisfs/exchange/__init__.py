"""How an open volume exchanges updates with other devices: through the clouds, and over direct links."""
