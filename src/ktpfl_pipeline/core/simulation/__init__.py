"""What a simulation adds to its clients: absence, lateness, limited compute, and false predictions."""
