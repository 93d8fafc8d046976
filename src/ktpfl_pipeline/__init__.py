"""KT-pFL and the methods it is compared with, as a Kedro project."""

__version__ = "0.1.0"
