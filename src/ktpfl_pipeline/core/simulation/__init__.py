"""What a simulation adds to its clients: absence, lateness, poverty, and false predictions."""
