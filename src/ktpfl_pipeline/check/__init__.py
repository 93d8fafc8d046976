"""Checks of a user's methods, models and sources before a run: `ktpfl check my_package.topk:TopK`; see `command`."""
