"""What this machine gives: cores, memory, and files that are replaced whole."""
