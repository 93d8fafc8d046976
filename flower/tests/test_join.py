"""A client's process: how it ends where the SuperLink does not know it any more."""

import pytest

pytest.importorskip("flwr", reason="flwr is not installed here: make flower")
from loopback import BIN, JOIN, free_port, listens, process, wait_for
from real_clients import deal_out


def test_a_client_that_a_new_superlink_does_not_know_says_so_and_is_one_to_start_again(tmp_path):
    port, log = free_port(), tmp_path / "client.log"
    link = [BIN / "flower-superlink", "--insecure", "--host", "127.0.0.1", "--port", port, "--isolation", "process"]
    (file,) = deal_out(tmp_path, "local", ("mlp",))
    options = ["--insecure", "--superlink", f"127.0.0.1:{port}", "--pulse", "0.1"]
    with process(tmp_path, "link", link) as first:
        wait_for(lambda: listens(port), 120)
        with process(tmp_path, "client", [*JOIN, file, *options]) as client:
            wait_for(lambda: "SuperNode ID" in log.read_text(), 120)
            first.kill()
            first.wait()
            with process(tmp_path, "another", link):
                assert client.wait(120) == 1
    said = log.read_text()
    assert "does not know this client any more, for it was started anew: start the same command again" in said
    assert "Traceback" not in said
