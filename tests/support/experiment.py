"""An experiment and a sweep as in conf/, and a function that changes one value."""

import copy
from typing import Any

EXPERIMENT: dict[str, Any] = {
    "seeds": [0],
    "rounds": 3,
    "clients": 5,
    "participation": 0.8,
    "evaluation": {"closing_round": False},
    "adversaries": {"share": 0.0},
    "stragglers": {"share": 0.0},
    "budgets": {"share": 0.0},
    "architectures": ["lenet", "mlp"],
    "private": {"source": "digits", "classes": None},
    "public": {"source": "open_part", "share": 0.3, "batch": 60},
    "image": {"channels": 1, "size": 28},
    "partition": {"scheme": "two_labels"},
    "training": {"epochs": 1, "batch_size": 32, "learning_rate": 0.05, "privacy": {"noise_multiplier": 1.0}},
    "distillation": {"epochs": 1, "temperature": 1.0},
    "knowledge": {"encoding": "float32"},
    "compute": {"device": "cpu"},
    "methods": {"kt_pfl": {"rho": 0.7, "divergence_weight": None}, "fedmd": {}, "local": {}},
}
ONE_ARCHITECTURE: dict[str, Any] = {
    "seeds": [0],
    "architectures": ["mlp"],
    "private": {"source": "digits"},
    "public": {"source": "open_part", "batch": 50},
    "image": {"channels": 1, "size": 28},
    "partition": {"scheme": "two_labels"},
    "compute": {"device": "cpu"},
    "methods": {},
}
"""An experiment that sets only values without defaults."""
SWEEP: dict[str, Any] = {
    "experiment": "mine",
    "parameter": "training.epochs",
    "values": [1, 5],
    "methods": ["kt_pfl", "local"],
}
REMOVED = object()
"""A value that removes the setting."""


def changed(path: str, value: Any) -> dict[str, Any]:
    """Return the experiment with one changed value."""
    experiment = copy.deepcopy(EXPERIMENT)
    *sections, last = path.split(".")
    section = experiment
    for name in sections:
        section = section.setdefault(name, {})
    if value is REMOVED:
        del section[last]
    else:
        section[last] = value
    return experiment
