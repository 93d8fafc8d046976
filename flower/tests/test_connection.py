"""This process as the server's part: what it does when the SuperLink goes away."""

import sys
import textwrap
from contextlib import ExitStack

import pytest

pytest.importorskip("flwr", reason="Flower is not installed: make flower")
import loopback

from ktpfl_flower import connection
from ktpfl_pipeline.core.errors import InputError


def test_a_superlink_that_is_gone_or_new_is_given_up_and_the_process_can_end(monkeypatch):
    address = f"127.0.0.1:{loopback.free_port()}"
    with ExitStack() as stack:
        link = connection._started(address, None)
        stack.callback(link.terminate)
        grid = connection._entered(address, None, stack.enter_context(ExitStack()))
        assert grid.get_node_ids() == []
        link.terminate()
        link.wait()
        with monkeypatch.context() as patch:
            patch.setattr(connection, "PATIENCE", 0.5)
            with pytest.raises(
                InputError, match=rf"{address} gave no answer .* within 0.5 seconds.*goes on at the checkpoint"
            ):
                grid.get_node_ids()
        stack.callback(connection._started(address, None).terminate)
        with pytest.raises(InputError, match=rf"{address} was started anew, or has ended the run: .*the same command"):
            grid.get_node_ids()


def test_a_superlink_that_was_started_is_gone_when_its_server_was_killed(tmp_path):
    port = loopback.free_port()
    told = f"""
        import time
        from ktpfl_flower import connection
        kept = connection._started("127.0.0.1:{port}", None)
        time.sleep(600)
    """
    with loopback.process(tmp_path, "server", [sys.executable, "-c", textwrap.dedent(told)]) as server:
        loopback.wait_for(lambda: loopback.listens(port), 120)
        server.kill()
    loopback.wait_for(lambda: not loopback.listens(port), 120)


@pytest.mark.parametrize("address", ["no-such-host.invalid:8000", "127.0.0.1:80000"])
def test_an_address_that_is_none_is_named(address):
    with pytest.raises(InputError, match=f"compute.flower.superlink is '{address}'"):
        connection._listens(address)


def test_a_certificate_that_is_not_there_is_named(tmp_path):
    with pytest.raises(InputError, match=r"compute\.flower\.certificate is .*ca\.crt.*No such file"):
        connection._authority(str(tmp_path / "ca.crt"))
