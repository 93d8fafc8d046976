"""A real client: its file, its stored models, its replies, and what never leaves it."""
