"""This process as the server's part: what it does when the SuperLink goes away."""

from contextlib import ExitStack

import pytest

pytest.importorskip("flwr", reason="Flower is not installed: make flower")
import loopback

from ktpfl_pipeline.core.errors import InputError
from ktpfl_pipeline.flower import connection


def test_a_superlink_that_is_gone_is_given_up_and_the_process_can_end(tmp_path, monkeypatch):
    address = f"127.0.0.1:{loopback.free_port()}"
    with ExitStack() as stack:
        link = connection._started(address, None)
        stack.callback(link.kill)
        closing = stack.enter_context(ExitStack())
        grid = connection._entered(address, None, closing)
        assert grid.get_node_ids() == []
        link.kill()
        link.wait()
        monkeypatch.setattr(connection, "PATIENCE", 0.5)
        with pytest.raises(InputError, match=rf"{address} was away for 0.5 seconds.*goes on at the checkpoint"):
            grid.get_node_ids()
