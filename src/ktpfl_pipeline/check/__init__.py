"""Checks of one's own parts before a run: `ktpfl check my_package.topk:TopK`; see `command`."""
