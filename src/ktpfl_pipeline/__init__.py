"""KT-pFL and the methods that it is compared with, as a Kedro project and as a library.

``import ktpfl_pipeline as kt`` provides the public names for own methods, notebooks and scripts. A name's module is
imported when the name is first used, so that importing the package is fast.

Example:
    >>> fed = kt.federation("digits", clients=10, partition="two_labels")
    >>> kt.compare(["kt_pfl", "local"], fed, rounds=5)
"""

import importlib
import os
from typing import Any

# torch reads this variable at its first allocation, and then allocates large tensors on huge pages if the system has
# them. A training step of AlexNet on a CPU then causes 1,000 page faults instead of 21,000. Results do not change.
os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")

__version__ = "0.1.0"

_HOMES = {
    "in_memory": ("federation", "run", "compare", "Comparison"),
    "runs.given": ("label_counts",),
    "core.federation": ("Federation",),
    "core.method": ("Method", "Personal", "PersonalState", "Shared", "SharedState", "FineTuned", "RoundReport"),
    "core.metrics": ("Traffic",),
    "core.setting": ("Client",),
    "core.settings": ("Compute", "Distillation", "LocalTraining"),
    "core.dataset": ("LabeledDataset",),
    "core.weights": ("average", "mix"),
    "core.errors": ("InputError",),
    "methods": ("METHODS", "create"),
    "reports": ("figures",),
}
"""The modules that define public names, with these names."""
_MODULES = {name: module for module, names in _HOMES.items() for name in names}
__all__ = ["__version__", *_MODULES]  # noqa: PLE0604 - all elements are strings


def __getattr__(name: str) -> Any:
    """Import a public name on its first use."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = importlib.import_module(f"{__name__}.{_MODULES[name]}")
    found = getattr(home, name) if hasattr(home, name) else importlib.import_module(f"{home.__name__}.{name}")
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted(__all__)
