"""Tokenization of texts: built-in tokenizers, tokenizer files of the package `tokenizers`, and checks of ids."""

import os
import re
import unicodedata
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ktpfl_pipeline.core.dataset import Vocabulary
from ktpfl_pipeline.core.errors import InputError, check_installed, plural
from ktpfl_pipeline.core.machine.resources import check_claim
from ktpfl_pipeline.core.warnings import warn
from ktpfl_pipeline.data.settings import AUTO, Text
from ktpfl_pipeline.data.sources.files import brief
from ktpfl_pipeline.data.sources.photographs import Reading
from ktpfl_pipeline.data.standardization import PADDING, UNKNOWN

WORDS, CHARACTERS = "words", "characters"
MAX_VOCABULARY = 2**20
"""The largest number of ids in a vocabulary, because each id needs an embedding in every model of every client."""
MAX_LENGTH = 1000
"""The largest number of tokens of a text if `length` is not set."""
MAX_WORD = 100
"""The largest number of characters of a word; longer words, such as addresses, are cut."""
SPECIAL = ("[PAD]", "[UNK]")
"""The names of the tokens `PADDING` and `UNKNOWN` in the built-in tokenizers."""
PADDINGS = ("[PAD]", "<pad>", "<|padding|>", "<|endoftext|>")
"""Names of the padding token in tokenizer files, the most usual first."""
UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff"  # Thai, Lao, Burmese, Khmer
    "\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff\uff66-\uff9d"  # Japanese syllables
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U000323af"  # Chinese characters
)
"""Characters of scripts without spaces between words: each is a word."""


Tokens = tuple[Tensor, Vocabulary]
"""Texts as ids, (M, L) int64, and their vocabulary."""


def tokenized(texts: Sequence[str], reading: Reading, where: str, folder: Path, auto: str = WORDS) -> Tokens:
    """Return texts as tokens.

    Args:
        texts: M texts.
        reading: the settings: the tokenizer, the length, and for public texts the vocabulary of the private texts.
        where: the file of the texts, for messages.
        folder: the folder that the relative path of a tokenizer file starts from.
        auto: the tokenizer for the setting ``auto``; public texts use the tokenizer of the private texts instead.

    Raises:
        InputError: if the tokenizer cannot be used, or a text has no token or is too long.
    """
    how, known = reading.text, reading.known
    name = how.tokenizer
    if name == AUTO:
        name = auto if known is None else _tokenizer_of(known)
    if name not in (WORDS, CHARACTERS):
        return _by_file(texts, how, where, folder / os.path.expanduser(name), known)
    parts = [words(text) if name == WORDS else list(text) for text in texts]
    _check_none_empty(parts, where)
    if known is None:
        found = sorted({part for each in parts for part in each})
        if len(found) + len(SPECIAL) > MAX_VOCABULARY:
            raise InputError(
                f"{where} has {len(found):,} different {name}, and at most {MAX_VOCABULARY - len(SPECIAL):,} can be"
                " read: take fewer texts, or set text.tokenizer to a tokenizer file."
            )
        seen = len(SPECIAL) + min(len(found), how.vocabulary)
        known = Vocabulary(len(found) + len(SPECIAL), PADDING, (*SPECIAL, *found), seen, name)
    elif known.words is None:
        raise InputError(f"{where} has texts, and the private tokens have no vocabulary: save the array 'vocabulary'.")
    numbers = {word: number for number, word in enumerate(known.words or ())}
    unknown = numbers.get(SPECIAL[UNKNOWN])
    if unknown is None:
        unknown = numbers.get("<unk>", known.padding)
    rows = [[numbers.get(part, unknown) for part in each] for each in parts]
    if unknown is None and (odd := next((row for row, each in enumerate(rows) if None in each), None)) is not None:
        raise InputError(
            f"{where} has {parts[odd][rows[odd].index(None)]!r}, which the private vocabulary lacks, in text {odd + 1}:"
            " take texts of the same characters or words."
        )
    total, strange = sum(map(len, rows)), sum(row.count(unknown) for row in rows)
    if strange > total / 2:
        warn(
            "Unknown words",
            f"{where}: {strange:,} of {total:,} tokens ({name}) are not in the vocabulary of the private texts: take "
            "texts of the same kind, or train with another text.tokenizer.",
        )
    return _filled(rows, known, how.length, where)


def _tokenizer_of(known: Vocabulary) -> str:
    """Return the built-in tokenizer of a vocabulary, inferred from the tokens if the vocabulary does not name it."""
    if known.tokenizer:
        return known.tokenizer
    plain = [word for word in known.words or () if not word.startswith(("[", "<"))]  # besides [PAD], <unk> and the like
    single = bool(plain) and all(len(word) == 1 for word in plain)
    return CHARACTERS if single or any(map(str.isspace, plain)) else WORDS


def words(text: str) -> list[str]:
    """Return the tokens of a text: words in lower case, and single punctuation marks; ``it's`` has three tokens.

    Combining marks belong to the character before them. Scripts without spaces, such as Chinese, Japanese and Thai, are
    split into characters.
    """
    return [word[:MAX_WORD] for word in _word().findall(unicodedata.normalize("NFC", text).lower())]


@cache
def _word() -> re.Pattern[str]:
    marks = "".join(chr(code) for code in range(0x300, 0x1E950) if unicodedata.category(chr(code))[0] == "M")
    joined = rf"{marks}\u200c\u200d"  # two invisible characters join or separate letters of one word
    return re.compile(rf"[{UNSPACED}][{joined}]*|(?:(?![{UNSPACED}])[\w{joined}])+|[^\w\s]")


def _check_none_empty(parts: Sequence[Sequence[Any]], where: str) -> None:
    if (row := next((row for row, each in enumerate(parts) if not each), None)) is not None:
        raise InputError(f"{where} has no token in text {row + 1} (texts count from 1): fill it in, or leave it out.")


def _filled(rows: Sequence[Sequence[Any]], known: Vocabulary, length: int | None, where: str, cut: int = 0) -> Tokens:
    """Return rows of ids, cut or padded to one length. The tokenizer has already cut `cut` of the rows."""
    longest = max((len(row) for row in rows), default=0)
    if length is None and longest > MAX_LENGTH:
        at = next(row for row, each in enumerate(rows) if len(each) == longest)
        raise InputError(
            f"{where} has a text of {longest:,} tokens (text {at + 1}). Texts of more than {MAX_LENGTH:,} tokens need"
            " text.length: set it, for example to 200, and longer texts are cut."
        )
    length = length or longest
    short = any(len(row) < length for row in rows)
    if short and known.padding is None:
        raise InputError(
            f"{where} has texts of different lengths, and the vocabulary has no padding token: choose a tokenizer that"
            " has one, or texts of one length."
        )
    check_claim(Path(where), len(rows) * length * 8, "lower text.length, or take fewer texts")
    ids = torch.full((len(rows), length), known.padding or 0)
    for row, each in enumerate(rows):
        kept = each[:length]
        ids[row, : len(kept)] = torch.tensor(kept, dtype=torch.int64)
    if cut := cut or sum(len(row) > length for row in rows):
        warn(
            "Cut texts",
            f"{where}: texts of more than {plural(length, 'token')} are cut, {cut:,} of {len(rows):,}: raise "
            "text.length to keep them whole.",
        )
    return ids, known


def _by_file(texts: Sequence[str], how: Text, where: str, file: Path, known: Vocabulary | None) -> Tokens:
    """Return texts as tokens of a tokenizer file. The tokenizer cuts texts to `how.length` tokens."""
    if not file.is_file():
        raise InputError(
            f"text.tokenizer is {how.tokenizer!r}, and there is no file {file}: choose {WORDS}, {CHARACTERS} or a"
            " tokenizer.json of the tokenizers package."
        )
    check_installed(str(file), "tokenizers")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # workers are forked after this
    from tokenizers import Tokenizer

    check_claim(file, file.stat().st_size * 10, "choose a smaller tokenizer", "a vocabulary")
    try:
        made = Tokenizer.from_file(str(file))
    except Exception as error:  # the library raises plain exceptions
        raise InputError(
            f"{file} is not a tokenizer file ({brief(error)}): save one with Tokenizer.save, or take the"
            " tokenizer.json of a model."
        ) from error
    numbers = made.get_vocab(with_added_tokens=True)
    size = max(len(numbers), 1 + max(numbers.values(), default=0))
    if not 2 <= size <= MAX_VOCABULARY:
        raise InputError(
            f"{file} has {plural(size, 'token')}, and 2 to {MAX_VOCABULARY:,} are possible: choose another one."
        )
    padding = next((numbers[name] for name in PADDINGS if name in numbers), None)
    own = Vocabulary(size, padding, tuple(made.id_to_token(number) or f"[{number}]" for number in range(size)))
    if known is not None and known != own:
        raise InputError(f"{where} would have another vocabulary than the private tokens: use one tokenizer for both.")
    made.no_padding()
    made.no_truncation()
    if how.length is not None:
        made.enable_truncation(how.length)  # the tokenizer keeps special tokens at the end
    encoded = made.encode_batch(list(texts))
    rows = [each.ids for each in encoded]
    _check_none_empty(rows, where)
    return _filled(rows, own, how.length, where, sum(bool(each.overflowing) for each in encoded))


def vocabulary_of(ids: Tensor, where: str, size: int | None = None, padding: int | None = None) -> Vocabulary:
    """Return the vocabulary of the tokens `ids`, (M, L) int64; without `size`, the highest id determines its size.

    Raises InputError, which names `where`, if an id or the id of the padding token is not in the vocabulary.
    """
    if size is None:
        size = max(2, 1 + int(ids.max()), 1 + (padding or 0))
        if size > MAX_VOCABULARY:
            raise InputError(
                f"{where} has the id {size - 1:,}, and ids are 0 to {MAX_VOCABULARY - 1:,}: number the tokens from 0."
            )
    check_ids(ids, size, where)
    if padding is not None and not 0 <= padding < size:
        raise InputError(f"{where} has the padding id {padding}, and ids are 0 to {size - 1:,}: correct it.")
    return Vocabulary(size, padding)


def check_ids(ids: Tensor, size: int, where: str) -> None:
    """Raise InputError if one of the ids, (M, L), is not in 0..size-1. The message names the first such id."""
    outside = (ids < 0) | (ids >= size)
    if outside.any():
        row, place = outside.nonzero()[0].tolist()
        raise InputError(
            f"{where} has the id {int(ids[row, place]):,} in row {row}, place {place} (both count from 0), and the"
            f" vocabulary has the ids 0 to {size - 1:,}: save ids of the vocabulary, or a larger vocabulary."
        )
