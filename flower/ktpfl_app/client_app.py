"""One client: its data and its model stay in its own process."""

from ktpfl_pipeline.flower.app import client as app

__all__ = ["app"]
