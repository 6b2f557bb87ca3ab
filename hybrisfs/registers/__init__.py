"""What registers say: keys and values that travel in updates, and rules on these alone."""
