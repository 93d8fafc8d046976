"""The model that one client keeps: a folder that MLflow can serve, and that runs without this package.

The folder has the weights (`WEIGHTS`), the facts about the model and its inputs (`ABOUT`), and an example of a request.
`CODE` has a copy of the source files that build the model and prepare its inputs, which MLflow runs; none of them
trains. `load` reads only weights and facts, and runs no code of the folder.

Example:
    >>> model = load("models/hetero_digits/client-0")
    >>> model.class_names, model.predict(model.inputs.of_file(Path("digit.png")))  # probabilities, (B, K)
"""

import json
import platform
import shutil
import uuid
from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ktpfl_pipeline import models
from ktpfl_pipeline.analysis.inputs import TOKENIZER, Inputs
from ktpfl_pipeline.core import joint
from ktpfl_pipeline.core.dataset import TokenShape
from ktpfl_pipeline.core.errors import InputError
from ktpfl_pipeline.core.extensions import OURS, add_imports
from ktpfl_pipeline.core.machine.files import replacing
from ktpfl_pipeline.core.model_facts import facts_of
from ktpfl_pipeline.data.settings import AUTO
from ktpfl_pipeline.data.sources.tokens import CHARACTERS, WORDS
from ktpfl_pipeline.models import transformers

WEIGHTS, ABOUT, CODE, EXAMPLE = "model.pt", "about.json", "code", "input_example.json"
PREDICTED = "predicted class"
"""The name of the class with the highest probability in a prediction."""
PACKAGES = ("mlflow", "torch", "torchvision", "numpy", "annotated-types", "pillow")
"""The packages that a model needs, beside those of its family of architectures."""
OF_FAMILIES = {"timm": ("timm",), "transformers": ("transformers", "safetensors")}


def save(folder: Path, weights: Mapping[str, Tensor], about: Mapping[str, Any], start: Path) -> "Kept":
    """Write a model to a folder, which is replaced, and return the model as it is read from there.

    Args:
        folder: the folder.
        weights: the complete weights, as in `state_dict`.
        about: the facts that `inputs.facts` returns, the ``architecture``, and further plain values.
        start: where the relative path of a tokenizer file starts.

    Raises:
        InputError: if the tokenizer file does not exist, or the files cannot be written.
    """
    kept = {name: tensor.cpu() for name, tensor in weights.items()}
    names = {name: name for name in (about["architecture"], joint.common_of(weights)) if name}
    with replacing(folder, f"The model {folder}") as partial:
        partial.mkdir(parents=True)
        for place, name in enumerate(filter(transformers.is_one, names)):
            (partial / f"architecture-{place}").mkdir()
            shutil.copy(transformers.folder_of(name) / transformers.CONFIG, partial / f"architecture-{place}")
            names[name] = f"{transformers.FAMILY}architecture-{place}"
        known = {**about, "architectures": {name: new for name, new in names.items() if new != name}}
        reading = about["reading"]
        if about["vocabulary"] and (name := reading["text"]["tokenizer"]) not in (AUTO, WORDS, CHARACTERS):
            if not (file := start / Path(name).expanduser()).is_file():
                raise InputError(f"The tokenizer of the texts, {file}, does not exist: put it back.")
            shutil.copy(file, partial / TOKENIZER)
            known["reading"] = {**reading, "text": {**reading["text"], "tokenizer": TOKENIZER}}
        with (partial / WEIGHTS).open("wb") as opened:
            torch.save(kept, opened)  # with a path, torch would hide the system's error message
        (partial / ABOUT).write_text(json.dumps(known, indent=1), encoding="utf-8")
        _copy_code(partial / CODE, [*names])
        written = Kept(partial, own=None)
        (partial / EXAMPLE).write_text(json.dumps(written.inputs.example()), encoding="utf-8")
        _describe(partial, written, [*names])
        written.predict_request(written.inputs.example())
    return Kept(folder, own=None)


def _copy_code(folder: Path, architectures: Collection[str]) -> None:
    """Copy the source files that `_load_pyfunc` and the users' own architectures import, with their packages."""
    found = {**_code()}
    # All models of this package: a process that loads several kept models imports the copy of the first.
    for name in map(models.module_of, (*models.MODELS, *models.FAMILIES, *architectures)):
        add_imports(found, name, name.partition(".")[0], inside=True)
    for name, file in found.items():
        parts = name.split(".")
        above = len(parts) - (file.name != "__init__.py")
        for place, package in enumerate(file.parents[:above]):
            start = package / "__init__.py"
            if start.is_file():
                copied = folder.joinpath(*parts[: above - place], start.name)
                copied.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(start, copied)
        (target := folder.joinpath(*parts[:above])).mkdir(parents=True, exist_ok=True)
        shutil.copy(file, target)


@cache
def _code() -> dict[str, Path]:
    """Return the files of this package that `_load_pyfunc` needs, by the names of their modules."""
    found: dict[str, Path] = {}
    add_imports(found, __name__, OURS, inside=True)
    return found


def _describe(folder: Path, kept: "Kept", architectures: Collection[str]) -> None:
    """Write the files with which MLflow loads a model and makes its environment. JSON is YAML too."""
    packages = [*PACKAGES, *(each for name in architectures for each in OF_FAMILIES.get(name.partition(":")[0], ()))]
    packages += ["tokenizers"] * (folder / TOKENIZER).exists()
    (folder / "requirements.txt").write_text("".join(f"{_pinned(each)}\n" for each in packages), encoding="utf-8")
    needed = {"python": platform.python_version(), "build_dependencies": ["pip"]}
    (folder / "python_env.yaml").write_text(json.dumps({**needed, "dependencies": ["-r requirements.txt"]}))
    answers = [{"type": "double", "name": name, "required": True} for name in kept.class_names]
    gives = [{"type": "string", "name": PREDICTED, "required": True}, *answers]
    flavor = {"loader_module": __name__, "code": CODE, "env": {"virtualenv": "python_env.yaml"}}
    model = {
        "flavors": {"python_function": {**flavor, "python_version": platform.python_version()}},
        "model_uuid": uuid.uuid4().hex,
        "utc_time_created": str(datetime.now(UTC).replace(tzinfo=None)),
        "signature": {"inputs": json.dumps(kept.inputs.schema()), "outputs": json.dumps(gives), "params": None},
        "metadata": {"class_names": kept.class_names},
    }
    (folder / "MLmodel").write_text(json.dumps(model, indent=1), encoding="utf-8")


@cache
def _pinned(package: str) -> str:
    try:
        return f"{package}=={version(package).partition('+')[0]}"
    except PackageNotFoundError:  # a real client has no MLflow
        return package


class Kept:
    """A client's model, in evaluation mode.

    Attributes:
        about: the facts in plain values: ``method``, ``client``, ``name``, ``architecture`` and more.
        class_names: (K,) the names of the classes.
        inputs: reads new inputs, from files and from requests.
        module: the model, which takes numbers as in training; `predict` prepares them.
    """

    def __init__(self, folder: Path, own: Collection[str] | None = ()) -> None:
        """Read a folder. `own` are the architectures of a user's own code that may be imported; None: any."""
        self.about = known = json.loads((folder / ABOUT).read_text(encoding="utf-8"))
        weights = torch.load(folder / WEIGHTS, weights_only=True, map_location="cpu")
        self.inputs, self._classes, self._own = Inputs(known, folder), known["classes"], own
        self.class_names = known.get("class_names") or [str(label) for label in range(self._classes)]
        self._copied = {
            name: f"{transformers.FAMILY}{folder / new.removeprefix(transformers.FAMILY)}"
            for name, new in known.get("architectures", {}).items()
        }  # architectures whose folder is here now
        self.module = self._model(known["architecture"], weights)

    def _model(self, architecture: str, weights: Mapping[str, Tensor]) -> nn.Module:
        """Return a model of an architecture with complete weights, as in `state_dict`, in evaluation mode."""
        shape: Any = self.inputs.shape
        if (known := self.inputs.vocabulary) is not None:
            shape = TokenShape(shape, known.frequent or known.size, known.padding)

        def build(name: str) -> nn.Module:
            if models.is_own(name) and self._own is not None and name not in self._own:
                raise InputError(
                    f"The model is made by the code {name!r}, which is not part of this package: if you trust that "
                    f"code, allow it by its name, --own-code {name}."
                )
            return models.build(self._copied.get(name, name), shape, self._classes)

        def head(name: str) -> str:
            found = facts_of(build, name, shape, self.inputs.kind, self._classes).head
            assert found is not None  # methods that replace or join heads check that there are heads
            return found.name

        built = joint.built(build, head, architecture, weights).eval()
        built.load_state_dict(weights)
        return built

    @torch.no_grad()
    def predict(self, inputs: Any) -> Tensor:
        """Return the class probabilities, (B, K), for inputs in the form of the source, (B, ...).

        Raises InputError if their shape is another one, a feature is NaN or infinite, or a token id does not exist.
        """
        return torch.softmax(self.module(self.inputs.numbers(torch.as_tensor(inputs))), dim=1)

    def predict_request(self, request: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return the answers to a request in the form of `EXAMPLE`, which MLflow gives to `_Served` as a DataFrame."""
        if "inputs" in request:
            given = torch.tensor(request["inputs"], dtype=self.inputs.kind.dtype)
            return self.answers(self.predict(given))
        split = request["dataframe_split"]
        columns = zip(*split["data"], strict=True)
        return self.answers(self.predict(self.inputs.of_request(dict(zip(split["columns"], columns, strict=True)))))

    def answers(self, probabilities: Tensor) -> list[dict[str, Any]]:
        """Return for each row of probabilities, (B, K), the predicted class and the probability of each class."""
        return [
            {PREDICTED: self.class_names[max(range(len(row)), key=row.__getitem__)]}
            | dict(zip(self.class_names, row, strict=True))
            for row in probabilities.tolist()
        ]


class _Served:
    """A model as MLflow calls it."""

    def __init__(self, kept: Kept) -> None:
        self.kept = kept

    def predict(self, given: Any) -> list[dict[str, Any]]:
        """Return the answers to a DataFrame or an array; see `Inputs.of_request`."""
        return self.kept.answers(self.kept.predict(self.kept.inputs.of_request(given)))


def _load_pyfunc(path: str) -> _Served:
    """Load a model; MLflow calls this function, with the folder's copy of the code."""
    return _Served(Kept(Path(path), own=None))


def load(folder: str | Path, own: Collection[str] = ()) -> Kept:
    """Return the model in a folder that `save` wrote.

    Args:
        folder: the folder.
        own: the user's own architectures, as dotted paths, whose code may be imported from Python's path.

    Raises:
        InputError: if the folder has no model that can be used.
    """
    place = Path(folder)
    try:
        return Kept(place, own)
    except InputError:
        raise
    except Exception as error:  # damaged files can cause any error
        reason = " ".join(str(error).split())[:200]
        raise InputError(
            f"{place} has no model that can be used ({reason}). Give a folder that `ktpfl export` or a real client "
            f"wrote; it has the files {ABOUT} and {WEIGHTS}."
        ) from error
