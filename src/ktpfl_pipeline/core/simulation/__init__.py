"""What a simulation adds to its clients: false predictions."""
