"""Weights from a file: what is taken, what is refused, and that nothing in it runs."""

import pickle
from pathlib import Path
from typing import Any

import pytest
import torch

from ktpfl_pipeline.core.errors import InputError
from ktpfl_pipeline.models import build, pretrained


@pytest.fixture
def source() -> dict[str, torch.Tensor]:
    torch.manual_seed(1)
    return build("cnn_bn", (3, 28, 28), 10).state_dict()


WRAPS: dict[str, Any] = {
    "plain": dict,
    "state_dict": lambda own: {"state_dict": own},
    "model_state_dict": lambda own: {"model_state_dict": own, "optimizer_state_dict": {}},
    "model": lambda own: {"model": own, "epoch": 3},
    "lightning": lambda own: {"state_dict": {f"model.{name}": each for name, each in own.items()}, "epoch": 3},
}


@pytest.mark.parametrize("wrap", WRAPS.values(), ids=WRAPS)
def test_fitting_weights_are_loaded_and_the_rest_is_drawn(tmp_path: Path, source: Any, wrap: Any) -> None:
    torch.save(wrap(source), tmp_path / "weights.pth")
    weights = pretrained.read(tmp_path / "weights.pth")
    torch.manual_seed(2)
    drawn = build("cnn_bn", (1, 28, 28), 4).state_dict()
    torch.manual_seed(2)
    model = build("cnn_bn", (1, 28, 28), 4, {"cnn_bn": weights, "mlp": {}}).state_dict()
    for name, tensor in model.items():
        fresh = name.startswith(("0.", "9."))  # the first convolution, of other channels, and the output layer
        assert torch.equal(tensor, (drawn if fresh else source)[name]), name
    assert pretrained.load("cnn_bn", build("cnn_bn", (3, 28, 28), 10), weights) == 8


def test_names_of_models_that_were_trained_side_by_side(tmp_path: Path, source: Any) -> None:
    torch.save({f"module.{name}": tensor for name, tensor in source.items()}, tmp_path / "weights.pth")
    assert pretrained.read(tmp_path / "weights.pth").keys() == source.keys()


def test_the_fingerprint_is_of_all_values(source: Any) -> None:
    changed = {**source, "9.bias": source["9.bias"] + 1}
    prints = {pretrained.fingerprint({"cnn_bn": own}) for own in (source, changed)} | {
        pretrained.fingerprint({"cnn": source})
    }
    assert len(prints) == 3
    assert pretrained.fingerprint({"cnn_bn": dict(source)}) in prints


class Hostile:
    def __reduce__(self) -> Any:
        return Path.touch, (Path("ran"),)


def test_a_file_that_would_run_code_is_refused_and_does_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bad.pth").write_bytes(pickle.dumps({"0.weight": Hostile()}))
    torch.save({"0.weight": Hostile()}, tmp_path / "worse.pth")
    for name in ("bad.pth", "worse.pth"):
        with pytest.raises(InputError, match=r"cannot be read as weights .* nothing in it may run code\.$"):
            pretrained.read(tmp_path / name)
    assert not Path("ran").exists()


@pytest.mark.parametrize(
    "value", [5, [torch.zeros(2)], {"a": 1}, {"a": {"b": torch.zeros(2)}}, {"a": torch.eye(2).to_sparse()}]
)
def test_files_without_weights_are_rejected(tmp_path: Path, value: Any) -> None:
    torch.save(value, tmp_path / "odd.pth")
    with pytest.raises(InputError, match=r"odd\.pth holds no weights: it must be a mapping of names to tensors"):
        pretrained.read(tmp_path / "odd.pth")


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 no archive", b"\x80\x04."])
@pytest.mark.parametrize("name", ["cut.pth", "cut.safetensors"])
def test_files_that_are_none(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=r"cannot be read as weights|needs safetensors"):
        pretrained.read(tmp_path / name)
    with pytest.raises(InputError, match=r"^there is no file .*none\.pth: correct the path"):
        pretrained.read(tmp_path / "none.pth")


def test_weights_of_another_model_or_not_finite(source: Any) -> None:
    with pytest.raises(InputError, match=r"^none of the 14 tensors of the pretrained weights of lenet fits"):
        build("lenet", (3, 32, 32), 4, {"lenet": source})
    with pytest.raises(InputError, match=r"weights of cnn_bn have NaN or infinite values in 9\.bias: use another file"):
        build("cnn_bn", (3, 28, 28), 10, {"cnn_bn": {**source, "9.bias": torch.full((10,), torch.nan)}})
