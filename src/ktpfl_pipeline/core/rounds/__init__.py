"""What a round has besides its method: who takes part, what is measured and kept, and who joins after the last."""
