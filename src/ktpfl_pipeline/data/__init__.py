"""Where images come from, who gets which of them, and which are public."""
