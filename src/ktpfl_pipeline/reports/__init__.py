"""One report per experiment, from the results of its finished runs."""
