"""One volume of this user: its configuration, creation, life and check-up."""
