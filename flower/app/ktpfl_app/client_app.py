"""The client's app: it passes messages on to the client's own process."""

from ktpfl_flower.relay import client as app

__all__ = ["app"]
