"""A client's process: what it says before it joins, and how it ends where its SuperNode does."""

import subprocess

import pytest

pytest.importorskip("flwr", reason="flwr is not installed here: make flower")
from loopback import BIN, JOIN, free_port, listens, process, wait_for
from real_clients import deal_out


def test_a_file_that_cannot_be_used_is_told_of_before_anything_is_started(tmp_path):
    (file,) = deal_out(tmp_path, "local", ("mlp",))
    file.write_text(file.read_text().replace("mlp", "lenett"))
    done = subprocess.run([*JOIN, file, "--insecure"], capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "'lenett' is unknown" in done.stderr and "Traceback" not in done.stderr


def test_a_client_ends_with_its_supernode_and_is_one_to_start_again(tmp_path):
    port, log = free_port(), tmp_path / "client.log"
    link = [BIN / "flower-superlink", "--insecure", "--host", "127.0.0.1", "--port", port]
    (file,) = deal_out(tmp_path, "local", ("mlp",))
    options = ["--insecure", "--superlink", f"127.0.0.1:{port}"]
    with process(tmp_path, "link", link) as first:
        wait_for(lambda: listens(port), 120)
        with process(tmp_path, "client", [*JOIN, file, *options]) as client:
            wait_for(lambda: "SuperNode ID" in log.read_text(), 120)
            first.kill()
            first.wait()
            with process(tmp_path, "another", link):  # which does not know this client
                assert client.wait(180) == 1
    assert "The SuperNode ended" in log.read_text()
