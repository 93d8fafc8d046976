"""The source `text`: a CSV file with one row per text: the text, its label, and optionally its client."""

from pathlib import Path

from torch import Tensor

from ktpfl_pipeline.core.dataset import LabeledDataset
from ktpfl_pipeline.core.errors import InputError
from ktpfl_pipeline.data.sources.parts import joined
from ktpfl_pipeline.data.sources.photographs import AS_THEY_ARE, Reading
from ktpfl_pipeline.data.sources.table import OPTIONAL, Table, check_filled, meant, opened, part_of
from ktpfl_pipeline.data.sources.tokens import Tokens, tokenized

_PUBLIC = {**dict.fromkeys(("true", "yes", "1"), True), **dict.fromkeys(("false", "no", "0"), False)}


def load(argument: str, folder: Path, reading: Reading = AS_THEY_ARE) -> LabeledDataset:
    """Return the private texts of a table; an `OwnedDataset` if the table has a column `client`.

    The first line names the columns, in any order. Other columns are ignored:
        text: the text of the sample.
        label: the class, a name or a number; classes are numbered `in_order`.
        client: optional: the client that owns the text.
        split, group: optional: as for the source `table`.
        public: optional: true or false. Public texts belong to no client, and need no label and no client; see
            `included`.

    Raises:
        InputError: if a column or a cell is missing, or a text cannot be used.
    """
    place, table = _table(argument, folder, ("text", "label"))
    rows = [row for row, public in enumerate(_public(place, table)) if not public]
    if not rows:
        raise InputError(f"{place} has no private text: add rows, or set their column 'public' to false.")
    private = {name: [cells[row] for row in rows] for name, cells in table.items()}
    check_filled(place, private, ("label", *OPTIONAL), rows)
    ids, known = tokenized(_texts(private), reading, str(place), folder)
    return joined(place, [part_of(place, private, ids, rows, vocabulary=known)])


def included(argument: str, folder: Path, reading: Reading = AS_THEY_ARE) -> Tensor:
    """Return the public texts of a table, (m, L) int64, in the vocabulary of its private texts."""
    place, table = _table(argument, folder, ("text",))
    public = _public(place, table)
    chosen = [text for text, open_ in zip(_texts(table), public, strict=True) if open_]
    if not chosen:
        raise InputError(
            f"{place} has no public text, which public.source: included needs: add a column 'public' that is true"
            " where a text belongs to no client, or choose another public.source, such as open_part."
        )
    if reading.known is None:
        reading = reading.of_public(load(argument, folder, reading))
    return tokenized(chosen, reading, str(place), folder)[0]


def unlabeled(argument: str, folder: Path, reading: Reading = AS_THEY_ARE) -> Tokens:
    """Return all texts of a table, (M, L) int64, and their vocabulary. Only the column `text` is needed."""
    place, table = _table(argument, folder, ("text",))
    return tokenized(_texts(table), reading, str(place), folder)


def _table(argument: str, folder: Path, needed: tuple[str, ...]) -> tuple[Path, Table]:
    """Return the path of a table and its columns. Raises InputError if a row has no text."""
    return opened("text", "tickets.csv", argument, folder, needed, (*OPTIONAL, "public"))


def _texts(table: Table) -> list[str]:
    return [str(text) for text in table["text"]]


def _public(place: Path, table: Table) -> list[bool]:
    if "public" not in table:
        return [False] * len(table["text"])
    return meant(place, "public", table["public"], _PUBLIC, "true or false")
