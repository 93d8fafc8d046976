"""Analysis of finished runs: summaries, differences and tests. Reports and figures are in `reports`."""
