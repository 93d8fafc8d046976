"""The server's app: the engine of ktpfl_pipeline on real clients."""

from ktpfl_flower.apps import server as app

__all__ = ["app"]
