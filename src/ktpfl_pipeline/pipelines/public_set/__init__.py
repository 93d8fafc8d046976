"""The public, unlabelled samples that every round's batch is drawn from."""
