"""From the settings of an experiment to the data of its runs."""
