"""What a kept model is given: rows of a table, texts, image files or arrays, from files or in a request to MLflow.

`FORMS` names the forms. Rows have the columns of the table that `ktpfl convert csv` converted; texts are tokenized, and
image files are read, as in training. Everything else is an array in the form of the source.
"""

import base64
import binascii
import io
import math
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, astuple
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ktpfl_pipeline.core import kinds
from ktpfl_pipeline.core.dataset import LabeledDataset, Vocabulary
from ktpfl_pipeline.core.errors import InputError, listed, plural
from ktpfl_pipeline.data.converters import tables
from ktpfl_pipeline.data.settings import Text
from ktpfl_pipeline.data.sources import Reading, adapt, npz, table, tokens
from ktpfl_pipeline.data.sources.files import IMAGE_SUFFIXES, readable
from ktpfl_pipeline.data.sources.parts import MISSING, NUMBER
from ktpfl_pipeline.data.sources.photographs import AS_THEY_ARE, photographs
from ktpfl_pipeline.data.standardization import Fitted, of_plain

FORMS = {"rows": "rows of a table (.csv)", "texts": "texts (.csv with a column 'text')", "images": "image files"}
"""Forms and their descriptions; the form of other inputs is ``arrays``."""
ARRAYS = "arrays (.npz, .npy, or .csv with a line of column names)"
TEXT, IMAGE = "text", "image"
"""The names of the only column in requests with texts and with images."""
NO_VALUE = ("<NA>", "NaT")
"""Missing values of pandas as text, besides NaN and None."""
TOKENIZER = "tokenizer.json"
"""The name of a tokenizer file next to a model."""


def facts(
    samples: LabeledDataset, classes: int, scale: Fitted | None = None, reading: Reading = AS_THEY_ARE
) -> dict[str, Any]:
    """Return, as plain values, what `Inputs` and a kept model need to know about the inputs of a federation's models.

    Args:
        samples: samples in the form of the source; their number does not matter.
        classes: K, the number of classes.
        scale: the quantities fitted to the training samples; None if there are none.
        reading: how image files and texts were read.
    """
    known = samples.vocabulary
    return {
        "reading": {"size": reading.size, "window": reading.window, "text": asdict(reading.text)},
        "kind": samples.kind.name,
        "shape": list(samples.inputs.shape[1:]),
        "classes": classes,
        "class_names": samples.class_names and list(samples.class_names),
        "columns": samples.columns and list(samples.columns),
        "fill": fill_of(samples),
        "missing": list(samples.missing),
        "scale": scale and scale.plain(),
        "vocabulary": known and astuple(known),
    }


def fill_of(samples: LabeledDataset) -> list[float] | None:
    """Return the features' values where one is missing, (F,), of the table of the first sample; None if unknown."""
    fill = samples.fill
    return None if fill is None else [float(value) for value in fill.view(-1, fill.shape[-1])[0]]


class Inputs:
    """Reads new inputs of a kept model, and prepares them as in training.

    Attributes:
        kind: the kind of the inputs.
        shape: the shape of an input in the form of the source.
        fill: (F,) float32, the features' values where one is missing; None if the source has none.
        vocabulary: the vocabulary of token ids; None for other inputs.
    """

    def __init__(self, known: Mapping[str, Any], place: Path) -> None:
        """Read what `facts` returned. `place` is the folder of the model, with its tokenizer file if it needs one."""
        self._known, self._place = known, place
        self.kind, self.shape = kinds.KINDS[known["kind"]], tuple(known["shape"])
        self._features = known.get("columns")
        self.fill = None if known.get("fill") is None else torch.tensor(known["fill"])
        self._scale = known["scale"] and of_plain(known["scale"])
        size, padding, words, *others = known["vocabulary"] or (0, None, None)
        self.vocabulary = Vocabulary(size, padding, words and tuple(words), *others) if size else None

    @cached_property
    def form(self) -> str:
        """The form of the inputs: ``rows``, ``texts``, ``images`` or ``arrays``."""
        if self._features:
            return "rows"
        if (known := self.vocabulary) and (known.tokenizer or self._known["reading"]["text"]["tokenizer"] == TOKENIZER):
            return "texts"
        return "images" if self.kind.pixels and self.shape[0] in (1, 3) else "arrays"

    @property
    def described(self) -> str:
        """The form, with the shape or the columns, for messages."""
        if self.form == "rows":
            return f"{FORMS['rows']} with the columns {listed([*self.columns])}"
        shape = " × ".join(map(str, self.shape))
        return f"{FORMS.get(self.form, ARRAYS)} of shape {shape}" if self.form != "texts" else FORMS["texts"]

    @cached_property
    def columns(self) -> dict[str, list[str]]:
        """The columns of the table by name, with the categories of each; a column of numbers has none."""
        found: dict[str, list[str]] = {}
        for name in self._features or ():
            column, _, category = name.partition("=") if self.fill is not None else (name, "", "")
            found.setdefault(column, []).extend([category] if category else [])
        return found

    @cached_property
    def _like(self) -> dict[str, Any]:
        names, fill = self._features or [], self.fill
        return {"columns": names, "fill": np.full(len(names), np.nan) if fill is None else fill.numpy()}

    @cached_property
    def _reading(self) -> Reading:
        known = self._known["reading"]
        text = Text(**{**known["text"], "length": self.shape[0] if self.vocabulary else None})
        size, window = (
            None if known[name] is None else (known[name][0], known[name][1]) for name in ("size", "window")
        )
        names = None if self._features is None else tuple(self._features)
        return Reading(size, window, text=text, known=self.vocabulary, columns=names)

    def of_file(self, file: Path, decimal: str = ".", missing: Sequence[str] = ()) -> Tensor:
        """Return the inputs in a file, or in a folder of image files, in the form of the source, (B, ...).

        Args:
            file: the file or the folder.
            decimal: the decimal separator of a table.
            missing: strings that mean a missing value in a table, besides those of training.

        Raises:
            InputError: if the file cannot be read, or has inputs of another form than the model takes.
        """
        suffix, form = file.suffix.lower(), self.form
        if not file.exists():
            raise InputError(f"There is no file {file}: correct the path. The model takes {self.described}.")
        if file.is_dir() or suffix in IMAGE_SUFFIXES:
            if not self.kind.pixels:
                raise InputError(f"{file} has images, and the model takes {self.described}: give such a file.")
            files = self.files_of(file)
            if files == [file] and file.is_dir():
                raise InputError(f"{file} has no image file: images are {', '.join(IMAGE_SUFFIXES)}.")
            return self._images(file, files)
        if suffix == ".npz":
            return self._adapted(npz.unlabeled(str(file.absolute()), Path(), self._reading)[0], file)
        if suffix == ".npy" and form == "arrays":
            with readable(file, "is not an array of numbers", "save it with numpy.save"):
                array = np.load(file, allow_pickle=False)
                return self._shaped(torch.from_numpy(array.astype(array.dtype.newbyteorder("="))))
        if suffix == ".csv" and form != "images":
            return self._of_table(file, decimal, missing)
        raise InputError(f"{file} cannot be used: the model takes {self.described}.")

    def files_of(self, path: Path) -> list[Path]:
        """Return the image files in a folder by name; the path itself if it is a file, or a folder without images."""
        found = sorted(path.iterdir()) if path.is_dir() else []
        return [each for each in found if each.suffix.lower() in IMAGE_SUFFIXES] or [path]

    def of_texts(self, texts: Sequence[str]) -> Tensor:
        """Return texts as token ids, (B, L) int64. Raises InputError if the model does not take texts."""
        if self.form != "texts":
            raise InputError(f"The model does not take texts: it takes {self.described}.")
        return tokens.tokenized(texts, self._reading, "the input", self._place)[0]

    def of_request(self, given: Any) -> Tensor:
        """Return the inputs of a request to MLflow, in the form of the source, (B, ...).

        Args:
            given: a DataFrame, or a mapping of columns, with the columns of the table, ``text`` or ``image`` (the bytes
                of image files, or these in base64); otherwise an array.

        Raises:
            InputError: if a column is missing, or a value cannot be used.
        """
        if isinstance(given, np.ndarray | Tensor) or not hasattr(given, "keys"):
            return torch.as_tensor(given)
        cells = {str(name): list(given[name]) for name in given.keys()}  # noqa: SIM118 - of a DataFrame too
        needed = [*self._types]
        if not needed or (lacking := [name for name in needed if name not in cells]):
            found = (
                f"no column {lacking[0]!r}, only {listed([*cells])}" if needed else f"the columns {listed([*cells])}"
            )
            raise InputError(f"The request has {found}: the model takes {self.described}.")
        if self.form == "texts":
            if odd := [text for text in cells[TEXT] if not isinstance(text, str)]:
                raise InputError(
                    f"The request has the text {odd[0]!r}, which is not a string: fill it in, or leave it out."
                )
            return self.of_texts(cells[TEXT])
        if self.form == "images":
            return self._sent(cells[IMAGE])
        read = {name: [_cell(each) for each in cells[name]] for name in needed}
        read = self._without_missing(read, (), ".")
        return self._encoded(Path("the request"), read, range(1, len(cells[needed[0]]) + 1))

    def example(self) -> dict[str, Any]:
        """Return a request to MLflow with one input, as JSON has it. No value in it is a client's own."""
        if self.form == "rows":
            names, fill = self._features or [], self._like["fill"]
            usual = {name: 0.0 if np.isnan(value) else float(value) for name, value in zip(names, fill, strict=True)}
            row = [
                max(found, key=lambda each: usual[f"{name}={each}"]) if found else usual[name]
                for name, found in self.columns.items()
            ]
        elif self.form == "texts":
            words = (self.vocabulary and self.vocabulary.words) or ()
            row = [" ".join(words[2:6]) or "text"]
        elif self.form == "images":
            row = [self._blank()]
        else:
            return {"inputs": torch.zeros(1, *self.shape, dtype=self.kind.dtype).tolist()}
        return {"dataframe_split": {"columns": [*self._types], "data": [row]}}

    def schema(self) -> list[dict[str, Any]]:
        """Return the inputs in the form of MLflow's signatures."""
        if self._types:
            return [{"name": name, "type": kind, "required": True} for name, kind in self._types.items()]
        dtype = str(self.kind.dtype).removeprefix("torch.")
        return [{"type": "tensor", "tensor-spec": {"dtype": dtype, "shape": [-1, *self.shape]}}]

    @cached_property
    def _types(self) -> dict[str, str]:
        """The columns of a request with MLflow's names of their types; empty for arrays."""
        only = {"texts": {TEXT: "string"}, "images": {IMAGE: "binary"}}
        return only.get(self.form) or {name: "string" if found else "double" for name, found in self.columns.items()}

    def numbers(self, inputs: Tensor) -> Tensor:
        """Return inputs, (B, ...) in the form of the source, as a model takes them.

        A missing value, NaN, is replaced by the value that `ktpfl convert csv` stored for its feature. Raises
        InputError if their shape is another one, a value is not finite and cannot be replaced, or a token id does not
        exist.
        """
        if inputs.dtype != self.kind.dtype and not (inputs.is_floating_point() and self.kind.standardized):
            raise InputError(f"The inputs are {inputs.dtype}, but the model takes {self.kind.name}: {self.kind.form}.")
        if tuple(inputs.shape[1:]) != self.shape or not len(inputs):
            raise InputError(
                f"The inputs have the shape {tuple(inputs.shape[1:])}, but the model takes {self.kind.name} of shape "
                f"{self.shape}. Give one or more of them, (B, ...)."
            )
        if inputs.is_floating_point():
            inputs = self._finite(inputs)
        if self.vocabulary is not None:
            tokens.check_ids(inputs, self.vocabulary.size, "the input")
        return self.kind.to_float(self._scale(inputs) if self._scale else inputs)

    def _finite(self, inputs: Tensor) -> Tensor:
        """Return features whose missing values are replaced. Raises InputError if a value is not finite."""
        if self.fill is not None and len(self.fill) == math.prod(self.shape):
            inputs = inputs.where(~inputs.isnan(), self.fill.view(self.shape))
        wrong = ~inputs.isfinite().flatten(1).all(dim=1)
        if wrong.any():
            raise InputError(
                f"Input {int(wrong.nonzero()[0])} (from 0) has a value that is not finite, and no value for missing "
                "ones is known: replace it. Tables that `ktpfl convert csv` converted have such values."
            )
        return inputs

    def _of_table(self, file: Path, decimal: str, missing: Sequence[str]) -> Tensor:
        found = table.read(file)
        rows = range(2, 2 + len(next(iter(found.values()), ())))
        if not rows:
            raise InputError(f"{file} has no row below the names of its columns: add one for each input.")
        if self.form == "texts":
            named = {name.lower(): cells for name, cells in found.items()}
            if TEXT not in named or None in named[TEXT]:
                problem = "an empty text" if TEXT in named else f"no column {TEXT!r}, only {listed([*found])}"
                raise InputError(f"{file} has {problem}: the model takes {self.described}.")
            return self.of_texts([str(text) for text in named[TEXT]])
        read = self._without_missing(found, missing, decimal)
        if self.form == "rows":
            return self._encoded(file, read, rows, decimal)
        if odd := next((name for name in read if NUMBER.fullmatch(name.replace(decimal, "."))), None):
            raise InputError(f"{file} begins with {odd}, a number: put a line with the names of the columns first.")
        like = {"columns": [*read], "fill": np.full(len(read), np.nan)}
        values = torch.from_numpy(tables.encoded(file, read, like, rows, decimal)["features"])  # (B, F), or (L, C)
        return values if len(self.shape) == 1 else self._shaped(values.T.contiguous())

    def _without_missing(self, found: table.Table, missing: Sequence[str], decimal: str) -> table.Table:
        """Return the cells of a table, with None for missing ones, of which training had strings of its own."""
        absent = {*MISSING, *self._known.get("missing", ()), *missing}
        exact = [name for name, values in self.columns.items() if values]
        return {
            name: tables.with_missing(cells, absent, None if name in exact else decimal)
            for name, cells in found.items()
        }

    def _encoded(
        self, file: Path, read: dict[str, list[str | None]], rows: Sequence[int], decimal: str = "."
    ) -> Tensor:
        if lacking := [name for name in self.columns if name not in read]:
            raise InputError(
                f"{file} has no {'column' if len(lacking) == 1 else 'columns'} {listed(lacking)}: add them; cells may "
                f"be empty. The model takes {self.described}."
            )
        features = torch.from_numpy(tables.encoded(file, read, self._like, rows, decimal)["features"])
        return features.view(-1, *self.shape)

    def _shaped(self, given: Tensor) -> Tensor:
        """Return one or several arrays, with or without the first dimension, as several."""
        several = given.unsqueeze(0) if given.ndim == len(self.shape) else given
        return several.to(self.kind.dtype) if self.kind.standardized else several

    def _images(self, where: Path, files: list[Path]) -> Tensor:
        return self._adapted(photographs(where, files, self._reading, listed=True)[0], where)

    def _adapted(self, inputs: Tensor, where: Path) -> Tensor:
        """Return images with the channels and the size of training; gray images are also repeated without a size."""
        shape = self.shape
        gray = inputs.ndim == 4 and inputs.shape[1] == 1 and tuple(inputs.shape[2:]) == shape[1:]
        if not self.kind.pixels or inputs.dtype != torch.uint8 or not (self._reading.size or gray):
            return inputs
        return adapt(inputs, shape, f"the images of {where}")

    def _sent(self, given: Sequence[Any]) -> Tensor:
        """Return images that were sent as bytes or in base64, (B, C, H, W) uint8."""
        with tempfile.TemporaryDirectory() as folder:
            files = [Path(folder, f"image {place}") for place in range(1, len(given) + 1)]
            for file, content in zip(files, given, strict=True):
                try:
                    sent = content if isinstance(content, bytes) else base64.b64decode(content, validate=True)
                    file.write_bytes(sent)
                except (binascii.Error, TypeError, ValueError) as error:
                    raise InputError(f"{file.name} is not a file in base64 ({error}): encode its bytes.") from error
            try:
                return torch.cat([self._images(Path("the request"), [file]) for file in files])
            except InputError as error:
                raise InputError(str(error).replace(f"{folder}/", "")) from error
            except RuntimeError as error:
                raise InputError(f"The {plural(len(given), 'image')} have several sizes or channels.") from error

    def _blank(self) -> str:
        from PIL import Image

        channels, height, width = self.shape
        file = io.BytesIO()
        Image.new("L" if channels == 1 else "RGB", (width, height)).save(file, "PNG")
        return base64.b64encode(file.getvalue()).decode()


def _cell(value: Any) -> str | None:
    """Return a value of a request as a cell of a table; None for a missing one."""
    text = repr(float(value)) if isinstance(value, float | np.floating) else str(value)
    return None if text in ("", *MISSING, *NO_VALUE) else text
