"""The engine: federation, verbs over many clients, round loop, checkpoints."""
