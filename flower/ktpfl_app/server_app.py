"""The server: the engine, whose clients are real."""

from ktpfl_pipeline.flower.app import server as app

__all__ = ["app"]
