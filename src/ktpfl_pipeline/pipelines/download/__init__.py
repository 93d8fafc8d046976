"""Samples: loaded, downloaded where they are not there yet, and images brought to one size."""
