"""What a user declares, tried on values before anything relies on it."""
