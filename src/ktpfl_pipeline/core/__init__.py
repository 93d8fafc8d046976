"""The engine: federation, operations on many clients, round loop, checkpoints."""
