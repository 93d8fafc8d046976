"""Data: sources of samples, their partition among the clients, and the public set."""
