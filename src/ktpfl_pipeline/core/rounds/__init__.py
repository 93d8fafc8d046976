"""What a round has beside its method: who takes part, what is measured and kept, and who joins after the last."""
