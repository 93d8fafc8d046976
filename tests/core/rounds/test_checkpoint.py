"""Checkpoints: whole or absent, of the same settings, and never a way to run code."""

import hashlib
import json
import os
import pickle
import random
from pathlib import Path
from typing import Any

import pytest
import torch
import toy
from full_disk import full_disk
from hostile_checkpoints import CHECKPOINTS, stamped
from hostile_checkpoints import SETTINGS as HOSTILE_SETTINGS
from hypothesis import given, settings
from hypothesis import strategies as st

from ktpfl_pipeline import __version__ as VERSION
from ktpfl_pipeline.core.errors import InputError
from ktpfl_pipeline.core.identity import digest
from ktpfl_pipeline.core.machine.files import HOST
from ktpfl_pipeline.core.rounds import checkpoint

CPU = torch.device("cpu")
SETTINGS = {"method": "kt_pfl", "seed": 0, "training.learning_rate": 0.01, "cohort": [1, 2], "weight": None}
CONTENT: dict[str, Any] = {
    "settings": SETTINGS,
    "state": {
        "models": {3: {"w": torch.arange(6.0).reshape(2, 3), "n": torch.tensor(4)}},
        "knowledge": torch.full((2, 2), 0.1, dtype=torch.float64),
    },
    "history": [{"round": 1, "accuracy": {"after_local": [0.1, 1 / 3]}, "cohort": [3]}],
    "coefficients": [torch.zeros(2, 2)],
}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "folder" / "run.ckpt"


def load(file: Path, **changes: Any) -> dict[str, Any] | None:
    return checkpoint.load(file, {**SETTINGS, **changes}, CPU)


def refused(file: Path, **changes: Any) -> str:
    with pytest.raises(InputError) as error:
        load(file, **changes)
    message = str(error.value)
    assert str(file) in message
    return message


class TestRoundTrip:
    def test_returns_what_was_saved(self, file: Path) -> None:
        checkpoint.save(file, CONTENT)
        assert toy.same(load(file), CONTENT)

    def test_replaces_the_one_before(self, file: Path) -> None:
        checkpoint.save(file, {**CONTENT, "history": []})
        checkpoint.save(file, CONTENT)
        assert toy.same(load(file), CONTENT)
        assert os.listdir(file.parent) == ["run.ckpt"]

    def test_none_where_there_is_none(self, file: Path) -> None:
        assert load(file) is None

    def test_a_partial_file_left_behind_is_harmless(self, file: Path) -> None:
        file.parent.mkdir()
        partial = file.with_name(f"run.ckpt.{HOST}-{os.getpid()}.partial")
        partial.write_bytes(b"half a checkpoint")
        assert load(file) is None
        checkpoint.save(file, CONTENT)
        assert toy.same(load(file), CONTENT)
        assert not partial.exists()


class TestAllOrNothing:
    def test_a_crash_while_writing_leaves_the_one_before(self, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        checkpoint.save(file, CONTENT)

        def half(content: Any, target: Any) -> None:
            target.write(b"PK half of it")
            raise OSError("No space left on device")

        monkeypatch.setattr(torch, "save", half)
        with pytest.raises(OSError, match="No space left"):
            checkpoint.save(file, {**CONTENT, "history": []})
        assert toy.same(load(file), CONTENT)

    def test_it_is_on_the_disk_before_it_takes_the_name(self, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        steps: list[str] = []
        sync, replace = os.fsync, Path.replace
        monkeypatch.setattr(os, "fsync", lambda number: (steps.append("sync"), sync(number))[1])
        monkeypatch.setattr(Path, "replace", lambda one, other: (steps.append("name"), replace(one, other))[1])
        checkpoint.save(file, CONTENT)
        assert steps == ["sync", "name"]


class TestFullDisk:
    def test_a_sentence_and_the_one_before(self, file: Path) -> None:
        """With room for some bytes it is torch that fails, with an error of its own."""
        checkpoint.save(file, CONTENT)
        larger = {**CONTENT, "coefficients": [torch.zeros(100, 100)]}
        expected = f"The checkpoint {file} could not be written (File too large): free some space on the disk"
        for room in (0, 1, 300, 3000):
            with pytest.raises(InputError) as refused, full_disk(room):
                checkpoint.save(file, larger)
            assert str(refused.value).startswith(expected), room
            assert toy.same(load(file), CONTENT), room
            assert [found.name for found in file.parent.iterdir()] == [file.name], "what is half-written takes space"
        checkpoint.save(file, larger)
        assert toy.same(load(file), larger)

    def test_a_folder_that_cannot_be_made(self, file: Path) -> None:
        file.parent.write_text("a file")
        with pytest.raises(InputError, match=r"could not be written: .* is a file, and must be a folder"):
            checkpoint.save(file, CONTENT)

    def test_what_cannot_be_saved_at_all_keeps_its_traceback(self, file: Path) -> None:
        with pytest.raises((RuntimeError, TypeError, AttributeError)) as error:
            checkpoint.save(file, {**CONTENT, "state": lambda: None})
        assert not isinstance(error.value, InputError)


class TestOtherSettings:
    def test_are_refused_by_name(self, file: Path) -> None:
        checkpoint.save(file, CONTENT)
        changes: dict[str, dict[str, Any]] = {
            "seed=0, now 1": {"seed": 1},
            "method='kt_pfl', now 'fedmd'": {"method": "fedmd"},
            "cohort=[1, 2], now [1, 3]": {"cohort": [1, 3]},
            "weight=null, now 2.0": {"weight": 2.0},
            "added=null, now true": {"added": True},
        }
        for difference, change in changes.items():
            message = refused(file, **change)
            assert f"({difference})" in message
            assert "delete the checkpoint" in message

    def test_all_of_them_are_named(self, file: Path) -> None:
        checkpoint.save(file, CONTENT)
        message = refused(file, seed=1, method="fedmd")
        assert "method='kt_pfl', now 'fedmd', seed=0, now 1" in message

    def test_a_setting_that_is_gone_is_named(self, file: Path) -> None:
        checkpoint.save(file, {**CONTENT, "settings": {**SETTINGS, "old": 7}})
        assert "old=7, now null" in refused(file)

    def test_order_of_settings_does_not_matter(self, file: Path) -> None:
        checkpoint.save(file, {**CONTENT, "settings": dict(reversed(SETTINGS.items()))})
        assert load(file) is not None


class TestStamp:
    """The last line: who made it, and a sum over everything before the sum."""

    def test_it_names_version_and_settings(self, file: Path) -> None:
        checkpoint.save(file, CONTENT)
        stamp, _, digits = file.read_bytes().rpartition(checkpoint.MARK)[2].rpartition(b" ")
        assert json.loads(stamp) == {"version": VERSION, "settings": digest(SETTINGS)}
        assert digits.decode() == hashlib.sha256(file.read_bytes()[:-64]).hexdigest()

    def test_torch_alone_reads_it_too(self, file: Path) -> None:
        checkpoint.save(file, CONTENT)
        assert toy.same(torch.load(file, weights_only=True), CONTENT)

    def test_another_version_is_refused_with_both(self, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        checkpoint.save(file, CONTENT)
        monkeypatch.setattr(checkpoint, "__version__", "99")
        message = refused(file)
        assert f"made with version {VERSION} of ktpfl_pipeline, and this is 99;" in message
        assert "delete the checkpoint to start the run again" in message

    def test_a_checkpoint_of_torch_alone_is_refused(self, file: Path) -> None:
        """As before checkpoints had a sum."""
        file.parent.mkdir()
        torch.save(CONTENT, file)
        assert "cannot be read (its end, with the checksum, is missing); delete it to start the run again" in refused(
            file
        )

    def test_torch_takes_a_flipped_bit_for_another_number(self, file: Path) -> None:
        """Why there is a sum."""
        checkpoint.save(file, CONTENT)
        content = bytearray(file.read_bytes())
        content[content.index(torch.tensor(5.0).numpy().tobytes()) + 3] ^= 0x80  # the sign
        file.write_bytes(content)
        assert torch.load(file, weights_only=True)["state"]["models"][3]["w"].min() == -5
        assert "its checksum does not match its content" in refused(file)

    @settings(derandomize=True, max_examples=75, deadline=None)
    @given(data=st.data())
    def test_any_damage_is_refused(self, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
        """A flipped bit, a cut, bytes in between: never another exception, and never loaded."""
        file = tmp_path_factory.getbasetemp() / "damaged.ckpt"
        checkpoint.save(file, CONTENT)
        whole = file.read_bytes()
        at = data.draw(st.integers(0, len(whole) - 1))
        kind = data.draw(st.sampled_from(["flip", "cut", "insert", "remove", "append"]))
        damaged = {
            "flip": whole[:at] + bytes([whole[at] ^ (1 << at % 8)]) + whole[at + 1 :],
            "cut": whole[:at],
            "insert": whole[:at] + data.draw(st.binary(min_size=1, max_size=9)) + whole[at:],
            "remove": whole[:at] + whole[at + data.draw(st.integers(1, 900)) :],
            "append": whole + data.draw(st.binary(min_size=1, max_size=200)),
        }[kind]
        file.write_bytes(damaged)
        message = refused(file)
        assert "delete it to start the run again" in message or VERSION in message
        assert file.read_bytes() == damaged

    @settings(derandomize=True, max_examples=60, deadline=None)
    @given(content=st.binary(max_size=300))
    def test_any_bytes_with_a_right_sum_are_refused(
        self, tmp_path_factory: pytest.TempPathFactory, content: bytes
    ) -> None:
        file = tmp_path_factory.getbasetemp() / "any.ckpt"
        file.write_bytes(content)
        stamped(file)
        assert "delete it to start the run again" in refused(file)


class Bomb:
    """Writes a file when it is unpickled."""

    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self) -> Any:
        return Path.touch, (self.trace,)


class TestUnreadable:
    def test_a_truncated_file(self, file: Path) -> None:
        checkpoint.save(file, CONTENT)
        whole = file.read_bytes()
        for length in (0, 1, 10, len(whole) // 4, len(whole) // 2, len(whole) - 100, len(whole) - 1):
            file.write_bytes(whole[:length])
            assert "cannot be read" in refused(file)

    @pytest.mark.filterwarnings("ignore:Detected pickle protocol")
    def test_garbage(self, file: Path) -> None:
        file.parent.mkdir()
        generator = random.Random(0)
        for length in [1, 2, 5, 30, 200] * 20:
            file.write_bytes(generator.randbytes(length))
            assert "delete it to start the run again" in refused(file)
        for text in ("hello", "{}", "(lp0\n.", "ccheckpoint\nload\n."):
            file.write_text(text)
            assert "cannot be read" in refused(file)

    @pytest.mark.filterwarnings("ignore:Using a non-tuple sequence")
    @pytest.mark.parametrize(
        "content", [[1, 2], {}, torch.zeros(3), "text", {"settings": None}, {"settings": [1]}], ids=str
    )
    def test_a_torch_file_of_something_else(self, file: Path, content: Any) -> None:
        file.parent.mkdir()
        torch.save(content, file)
        stamped(file)
        assert "; delete it to start the run again" in refused(file)

    @pytest.mark.parametrize("what", CHECKPOINTS)
    def test_a_hostile_file(self, file: Path, what: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(file.parent.parent)
        file.parent.mkdir()
        make, words = CHECKPOINTS[what]
        make(file)
        with pytest.raises(InputError) as error:
            checkpoint.load(file, HOSTILE_SETTINGS, CPU)
        assert words in str(error.value)
        assert str(file) in str(error.value)
        assert "delete" in str(error.value)
        assert os.listdir() == ["folder"], "code of theirs ran"

    @pytest.mark.parametrize("how", ["pickle", "torch", "inside"])
    def test_code_in_it_is_refused_and_not_run(self, file: Path, tmp_path: Path, how: str) -> None:
        trace = tmp_path / "the code ran"
        file.parent.mkdir()
        if how == "pickle":
            file.write_bytes(pickle.dumps(Bomb(trace), protocol=2))
        else:
            torch.save(Bomb(trace) if how == "torch" else {**CONTENT, "state": Bomb(trace)}, file)
        stamped(file)
        assert "delete it to start the run again" in refused(file)
        assert not trace.exists()
        torch.load(file, weights_only=False) if how != "pickle" else pickle.loads(file.read_bytes())
        assert trace.exists()  # it would have run


@pytest.mark.parametrize(
    ("change", "wrong"),
    [
        ({"state": None}, "state"),
        ({"state": {"models": {}}}, "state"),
        ({"history": {}}, "history"),
        ({"history": [3]}, "history"),
        ({"history": [{"round": 1}]}, "history"),
        ({"coefficients": [1.0]}, "coefficients"),
        ({"coefficients": "none"}, "coefficients"),
        ({"client_states": None}, "client_states"),
        ({"processor": None}, "processor"),
        ({"warnings": None}, "warnings"),
        ({"warnings": [("kind", 3)]}, "warnings"),
    ],
)
def test_content_of_another_form_is_one_sentence(file: Path, change: dict[str, Any], wrong: str) -> None:
    whole = {**CONTENT, "client_states": {}, "processor": "Xeon (AVX2)", "warnings": [("kind", "text")]}
    with pytest.raises(InputError, match=f"holds no {wrong} that a run can continue from"):
        checkpoint.check_form(file, whole | change, {"models", "knowledge"}, {"round", "accuracy", "cohort"})
    checkpoint.check_form(file, whole, {"models", "knowledge"}, {"round", "accuracy", "cohort"})
