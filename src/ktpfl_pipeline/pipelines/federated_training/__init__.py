"""The federated runs of one method, one per seed."""
