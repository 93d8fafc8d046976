"""The commands of a client and of a server: sockets, arguments, and exit status."""

import json
import os
import socket
import sys
from multiprocessing.connection import Client

import pytest
from real_clients import deal_out

from ktpfl_flower import join, run


def test_a_socket_that_an_ended_process_left_is_replaced(tmp_path):
    place = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(place))
    with join.listening(place) as listener, Client(str(place), "AF_UNIX") as asking:
        asking.send_bytes(b"hello")
        assert listener.accept().recv_bytes() == b"hello"


@pytest.mark.parametrize(
    ("place", "reason"), [("s", "in use"), ("none/s", "No such file"), ("a" * 120, "too long"), ("file", "in use")]
)
def test_a_place_that_cannot_be_a_socket_is_told_of(tmp_path, capsys, place, reason):
    (file,) = deal_out(tmp_path, "local", ("mlp",))
    (tmp_path / "file").touch()
    with join.listening(tmp_path / "s"):
        assert join.main([str(file), "--socket", str(tmp_path / place)]) == 1
        assert (tmp_path / "s").is_socket() and (tmp_path / "file").exists()
    said = capsys.readouterr().err
    assert f"{place} cannot be this client's socket (" in said and reason in said and "Choose a path" in said


@pytest.mark.parametrize("first", ["--superlink", "--superlink=127.0.0.1:8000", "--insecure"])
def test_an_option_before_the_file_is_told_of(capsys, first):
    with pytest.raises(SystemExit):
        join.main([first, "127.0.0.1:8000", "anna.yml"])
    assert f"the first argument is {first}, but it must be the client's file" in capsys.readouterr().err


@pytest.mark.parametrize(("options", "named"), [(["--insecure"], False), (["--auth-supernode-private-key", "k"], True)])
def test_a_key_that_may_not_be_registered_is_named_when_the_supernode_ends(
    tmp_path, monkeypatch, capsys, caplog, options, named
):
    caplog.set_level("INFO")
    (file,) = deal_out(tmp_path, "local", ("mlp",))
    monkeypatch.setattr(join, "patient", lambda *given: [sys.executable, "-c", "raise SystemExit(1)"])
    assert join.main([str(file), *options]) == 1
    assert ("flwr supernode register" in capsys.readouterr().err) == named
    assert f"is ended by Ctrl-C or kill {os.getpid()}" in caplog.text


@pytest.mark.parametrize(("said", "status"), [("Report: /a/report.html", 0), ("Error: no client is left.", 1)])
def test_the_exit_status_of_a_run_shows_whether_it_ended_with_a_report(tmp_path, monkeypatch, capfd, said, status):
    flwr = tmp_path / "flwr"
    flwr.write_text(f"#!/bin/sh\nprintf '%s\\n' \"$@\"\necho 'Successfully started run 12'\necho '{said}'\n")
    flwr.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    assert run.main([str(tmp_path / 'of "us".yml'), "here"]) == status
    command, app, link, *_, config, started, stop, last = capfd.readouterr().out.splitlines()  # flwr ends with 0
    assert started.endswith("12") and stop.endswith(f"To end the run: {flwr} stop 12 here")
    assert (
        (command, link, last) == ("run", "here", said) and (run.APP / "pyproject.toml").exists() and app == str(run.APP)
    )
    assert json.loads(config.partition("=")[2]) == str(tmp_path / 'of "us".yml')
