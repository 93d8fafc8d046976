"""A real client: its own file, what it keeps of a run, what it answers, and what never leaves it."""
