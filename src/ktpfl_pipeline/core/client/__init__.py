"""The operations for one client.

An operation is called as ``operation(space, n, params, ...)`` by an executor and returns an `Outcome`. Arguments that
all of them share, and that each does not repeat:

    space: the workspace of the process.
    n: the client's id; the architecture, for a model of the server.
    params: the weights that it starts from, never written in place.
    t: the round, which names the random streams.
    batch: (B,) indices of public samples.
"""
