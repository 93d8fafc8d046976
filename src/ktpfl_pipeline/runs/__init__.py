"""From the settings of an experiment to its finished runs, without Kedro: data, federation, one run per seed."""
