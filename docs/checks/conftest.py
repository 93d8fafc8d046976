"""The checks share with the tests how torch runs, and that nothing is remembered of the one before."""

pytest_plugins = ["shared"]
