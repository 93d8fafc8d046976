"""Numbers from finished runs; draws nothing and writes nothing."""
