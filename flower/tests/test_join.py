"""The command that joins a federation: its socket and its arguments."""

import socket
from multiprocessing.connection import Client

import pytest
from real_clients import deal_out

from ktpfl_flower import join


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
