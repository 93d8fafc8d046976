"""The server of real clients: who is there, phases as messages, models that stay away, and the run."""
