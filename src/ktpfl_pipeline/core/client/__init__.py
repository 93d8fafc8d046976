"""The operations for one client.

An operation is called as ``operation(space, n, params, ...)`` by an executor and returns an `Outcome`. Arguments that
all operations share, and that their docstrings do not repeat:

    space: the workspace of the process.
    n: the client's id; for a model of the server, its architecture.
    params: the initial weights of the model, never written in place.
    t: the round, which names the random streams.
    batch: (B,) indices of public samples.
"""

from ktpfl_pipeline.core.client.outcome import Outcome
from ktpfl_pipeline.core.client.private import PrivateSamples
from ktpfl_pipeline.core.client.workspace import Workspace

__all__ = ["Outcome", "PrivateSamples", "Workspace"]
