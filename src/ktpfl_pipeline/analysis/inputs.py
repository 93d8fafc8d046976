"""What a kept model is given: rows of a table, texts, image files or arrays, from files or in a request to MLflow.

`FORMS` names the forms. Rows have the columns of the table that `ktpfl convert csv` converted; texts are tokenized, and
image files are read, as in training. Everything else is an array in the form of the source.
"""

import base64
import binascii
import io
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ktpfl_pipeline.analysis.serving import Served
from ktpfl_pipeline.core.errors import InputError, listed, plural
from ktpfl_pipeline.data.converters import tables
from ktpfl_pipeline.data.settings import Text
from ktpfl_pipeline.data.sources import Reading, adapt, npz, table, tokens
from ktpfl_pipeline.data.sources.files import IMAGE_SUFFIXES, readable
from ktpfl_pipeline.data.sources.parts import MISSING, NUMBER
from ktpfl_pipeline.data.sources.photographs import photographs

FORMS = {"rows": "rows of a table (.csv)", "texts": "texts (.csv with a column 'text')", "images": "image files"}
"""Forms and their descriptions; the form of other inputs is ``arrays``."""
ARRAYS = "arrays (.npz, .npy, or .csv with a line of column names)"
TEXT, IMAGE = "text", "image"
"""The names of the only column in requests with texts and with images."""
NO_VALUE = ("<NA>", "NaT")
"""Missing values of pandas as text, besides NaN and None."""
TOKENIZER = "tokenizer.json"
"""The name of a tokenizer file next to a model."""


@dataclass(frozen=True, eq=False)
class Inputs:
    """Reads new inputs of a kept model.

    Attributes:
        served: the model's facts.
        about: the plain values of these facts.
        place: the folder of the model, which has its tokenizer file, if it needs one.
    """

    served: Served
    about: Mapping[str, Any]
    place: Path

    @cached_property
    def form(self) -> str:
        """The form of the inputs: ``rows``, ``texts``, ``images`` or ``arrays``."""
        served = self.served
        if served.columns:
            return "rows"
        if (known := served.vocabulary) and (
            known.tokenizer or self.about["reading"]["text"]["tokenizer"] == TOKENIZER
        ):
            return "texts"
        return "images" if served.kind.pixels and served.shape[0] in (1, 3) else "arrays"

    @property
    def described(self) -> str:
        """The form, with the shape or the columns, for messages."""
        if self.form == "rows":
            return f"{FORMS['rows']} with the columns {listed([*self.columns])}"
        shape = " × ".join(map(str, self.served.shape))
        return f"{FORMS.get(self.form, ARRAYS)} of shape {shape}" if self.form != "texts" else FORMS["texts"]

    @cached_property
    def columns(self) -> dict[str, list[str]]:
        """The columns of the table by name, with the categories of each; a column of numbers has none."""
        found: dict[str, list[str]] = {}
        for name in self.served.columns or ():
            column, _, category = name.partition("=") if self.served.fill is not None else (name, "", "")
            found.setdefault(column, []).extend([category] if category else [])
        return found

    @cached_property
    def _like(self) -> dict[str, Any]:
        names, fill = self.served.columns or [], self.served.fill
        return {"columns": names, "fill": np.full(len(names), np.nan) if fill is None else fill.numpy()}

    @cached_property
    def _reading(self) -> Reading:
        known = self.about["reading"]
        text = Text(**{**known["text"], "length": self.served.shape[0] if self.served.vocabulary else None})
        size, window = (
            None if known[name] is None else (known[name][0], known[name][1]) for name in ("size", "window")
        )
        names = None if self.served.columns is None else tuple(self.served.columns)
        return Reading(size, window, text=text, known=self.served.vocabulary, columns=names)

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
            if not self.served.kind.pixels:
                raise InputError(f"{file} has images, and the model takes {self.described}: give such a file.")
            files = self.files_of(file)
            if files == [file] and file.is_dir():
                raise InputError(f"{file} has no image file: images are {', '.join(IMAGE_SUFFIXES)}.")
            return self._images(file, files)
        if suffix == ".npz":
            return self._adapted(npz.unlabeled(str(file.absolute()), Path(), self._reading)[0], file)
        if suffix == ".npy" and form == "arrays":
            with readable(file, "is not an array of numbers", "save it with numpy.save"):
                return self._shaped(torch.from_numpy(np.load(file, allow_pickle=False)))
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
        return tokens.tokenized(texts, self._reading, "the input", self.place)[0]

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
        needed = {"rows": [*self.columns], "texts": [TEXT], "images": [IMAGE]}.get(self.form, [])
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
            names, fill = self.served.columns or [], self._like["fill"]
            usual = {name: 0.0 if np.isnan(value) else float(value) for name, value in zip(names, fill, strict=True)}
            row = [
                max(found, key=lambda each: usual[f"{name}={each}"]) if found else usual[name]
                for name, found in self.columns.items()
            ]
            return {"dataframe_split": {"columns": [*self.columns], "data": [row]}}
        if self.form == "texts":
            words = (self.served.vocabulary and self.served.vocabulary.words) or ()
            return {"dataframe_split": {"columns": [TEXT], "data": [[" ".join(words[2:6]) or "text"]]}}
        if self.form == "images":
            return {"dataframe_split": {"columns": [IMAGE], "data": [[self._blank()]]}}
        return {"inputs": torch.zeros(1, *self.served.shape, dtype=self.served.kind.dtype).tolist()}

    def schema(self) -> list[dict[str, Any]]:
        """Return the inputs in the form of MLflow's signatures."""
        if self.form == "rows":
            return [
                {"name": name, "type": "string" if found else "double", "required": True}
                for name, found in self.columns.items()
            ]
        if self.form == "texts":
            return [{"name": TEXT, "type": "string", "required": True}]
        if self.form == "images":
            return [{"name": IMAGE, "type": "binary", "required": True}]
        dtype = str(self.served.kind.dtype).removeprefix("torch.")
        return [{"type": "tensor", "tensor-spec": {"dtype": dtype, "shape": [-1, *self.served.shape]}}]

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
        return values if len(self.served.shape) == 1 else self._shaped(values.T.contiguous())

    def _without_missing(self, found: table.Table, missing: Sequence[str], decimal: str) -> table.Table:
        """Return the cells of a table, with None for missing ones, of which training had strings of its own."""
        absent = {*MISSING, *self.about.get("missing", ()), *missing}
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
        return features.view(-1, *self.served.shape)

    def _shaped(self, given: Tensor) -> Tensor:
        """Return one or several arrays, with or without the first dimension, as several."""
        several = given.unsqueeze(0) if given.ndim == len(self.served.shape) else given
        return several.to(self.served.kind.dtype) if self.served.kind.standardized else several

    def _images(self, where: Path, files: list[Path]) -> Tensor:
        return self._adapted(photographs(where, files, self._reading, listed=True)[0], where)

    def _adapted(self, inputs: Tensor, where: Path) -> Tensor:
        """Return images with the channels and the size of training; gray images are also repeated without a size."""
        shape = self.served.shape
        gray = inputs.ndim == 4 and inputs.shape[1] == 1 and tuple(inputs.shape[2:]) == shape[1:]
        if not self.served.kind.pixels or inputs.dtype != torch.uint8 or not (self._reading.size or gray):
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

        channels, height, width = self.served.shape
        file = io.BytesIO()
        Image.new("L" if channels == 1 else "RGB", (width, height)).save(file, "PNG")
        return base64.b64encode(file.getvalue()).decode()


def _cell(value: Any) -> str | None:
    """Return a value of a request as a cell of a table; None for a missing one."""
    text = repr(float(value)) if isinstance(value, float | np.floating) else str(value)
    return None if text in ("", *MISSING, *NO_VALUE) else text
