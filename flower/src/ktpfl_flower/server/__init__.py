"""The server of real clients: registration, phases as messages, handles of models, and the run."""
