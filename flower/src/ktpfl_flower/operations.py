"""What a real client does when it is asked, by name: a fixed table, so that no code travels, and what each gives away.

Arguments and answers are checked where they arrive, the arguments at the client and the answers at the server.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from ktpfl_flower import encoded
from ktpfl_flower.wire import Kinds, Left, kinds_of
from ktpfl_pipeline.core import weights
from ktpfl_pipeline.core.client import features, operations
from ktpfl_pipeline.core.client.optimizers import Remembering
from ktpfl_pipeline.core.errors import InputError
from ktpfl_pipeline.core.knowledge.channel import decode
from ktpfl_pipeline.core.knowledge.settings import Knowledge
from ktpfl_pipeline.core.metrics import METRICS, UNDEFINED
from ktpfl_pipeline.core.setting import DTYPES, Setting
from ktpfl_pipeline.methods import METHODS, fedproto

TRIED = (
    *("kt_pfl", "kt_pfl_paper_literal", "kt_pfl_authors", "sim_pfl", "topk_pfl", "fedmd", "feddf_soft", "ds_fl"),
    *("feddf", "pfeddf", "fedproto", "fedavg", "fedavg_ft", "local"),
)
"""Methods whose runs with real clients equal those in one process, bit for bit, by a test. Other methods send a part of
a model, or train by a rule that is not in the table of operations."""
Gives = Literal["model", "predictions", "prototypes", "numbers"]
MANY = 2**31
"""More epochs, wider features, or more classes than anyone asks for."""


@dataclass(frozen=True, eq=False)
class Known:
    """What an end knows of a client that it checks arguments and answers by.

    Attributes:
        setting: the federation's.
        kinds: of the tensors of this client's model.
    """

    setting: Setting
    kinds: Kinds


@dataclass(frozen=True)
class Kind:
    """What an argument must be: in words, and how one finds out."""

    words: str
    holds: Callable[[Any, Known], bool]


@dataclass(frozen=True)
class Offer:
    """One operation.

    Attributes:
        perform: what is done, ``perform(workspace, n, *arguments)``.
        gives: what the client gives away by its answer; a ``model`` stays with it, and a number for it is answered.
        takes: its arguments; those behind `needed` may be left out.
        needed: how many there must be.
    """

    perform: Callable[..., Any]
    gives: Gives
    takes: tuple[Kind, ...]
    needed: int


def _tensor(value: Any, shape: tuple[int | None, ...], *dtypes: torch.dtype) -> bool:
    """Say whether a value is a tensor of such a shape, in which None is any size, and of one of the dtypes."""
    return (
        isinstance(value, Tensor)
        and value.dtype in dtypes
        and value.dim() == len(shape)
        and all(wanted in (None, size) for wanted, size in zip(shape, value.shape, strict=True))
    )


def _bytes(value: Any) -> bool:
    return (
        isinstance(value, tuple) and 0 < len(value) <= 2 and all(_tensor(part, (None,), torch.uint8) for part in value)
    )


def _whole(value: Any, most: int) -> bool:
    return type(value) is int and 0 <= value <= most


def _indices(value: Any, known: Known) -> bool:
    if not _tensor(value, (None,), torch.int64) or not len(value):
        return False
    return bool(((value >= 0) & (value < len(known.setting.public))).all())


FLOATS = (torch.float32, torch.float64)
MODEL = Kind("a model of its architecture", lambda value, known: _is_model(value, known.kinds))
ROUND = Kind("a round", lambda value, known: _whole(value, known.setting.rounds))
EPOCHS = Kind("a number of epochs", lambda value, known: value is None or _whole(value, MANY))
SPLIT = Kind("train, validation or test", lambda value, known: value in ("train", "validation", "test"))
BATCH = Kind("indices of public samples", _indices)
TEACHER = Kind("probabilities of classes", lambda value, known: _tensor(value, (None, known.setting.classes), *FLOATS))
WIDTH = Kind("a number of features", lambda value, known: _whole(value, MANY) and value > 0)
PROTOTYPES = Kind("a prototype a class", lambda value, known: _tensor(value, (known.setting.classes, None), *FLOATS))
SHOWN = Kind("a flag a class", lambda value, known: _tensor(value, (known.setting.classes,), torch.bool))
WEIGHT = Kind("a weight of 0 or more", lambda value, known: isinstance(value, int | float) and 0 <= value < MANY)
STATE = Kind("what it kept", lambda value, known: isinstance(value, Mapping))
ENCODING = Kind("an encoding", lambda value, known: value in ("float16", "uint8", "sign", "top_k"))
# of top_k; the others are told of it too, and it may be beyond their classes
LIKELIEST = Kind("a number of classes", lambda value, known: _whole(value, MANY) and value > 0)
BYTES = Kind("encoded probabilities", lambda value, known: _bytes(value))

OPERATIONS = {
    "train": Offer(operations.train, "model", (MODEL, ROUND, EPOCHS), 2),
    "distill": Offer(operations.distill, "model", (MODEL, TEACHER, BATCH, ROUND), 4),
    "logits": Offer(operations.logits, "predictions", (MODEL, BATCH), 2),
    "encoded_logits": Offer(encoded.logits, "predictions", (MODEL, BATCH, ENCODING, LIKELIEST, STATE), 5),
    "distill_encoded": Offer(encoded.distill, "model", (MODEL, ENCODING, LIKELIEST, BYTES, BATCH, ROUND), 6),
    "evaluate": Offer(operations.evaluate, "numbers", (MODEL, SPLIT), 2),
    "class_means": Offer(features.class_means, "prototypes", (MODEL, WIDTH), 2),
    "train_to_prototypes": Offer(fedproto.train_client, "model", (MODEL, PROTOTYPES, SHOWN, WEIGHT, ROUND, EPOCHS), 5),
}
REMEMBERING = "+state"
"""What follows the name of an operation that takes and returns its optimizer's state too."""


def find(name: str) -> Offer:
    """Return an operation by its name.

    Raises:
        InputError: if there is none.
    """
    offer = OPERATIONS.get(name.removesuffix(REMEMBERING))
    if offer is None or (name.endswith(REMEMBERING) and offer.gives != "model"):
        raise InputError(f"it asks for {name[:80]!r}, and a client offers {', '.join(OPERATIONS)} alone.")
    if not name.endswith(REMEMBERING):
        return offer
    arguments = Kind("the operation's arguments", lambda value, known: _fits(offer, value, known))
    return Offer(Remembering(offer.perform), "model", (STATE, arguments), 2)


def name_of(operation: Callable[..., Any]) -> str | None:
    """Return the name of a client operation in the table; None where it is not there."""
    inner = operation.operation if isinstance(operation, Remembering) else operation
    found = next((name for name, offer in OPERATIONS.items() if offer.perform is inner), None)
    return found and found + REMEMBERING * (inner is not operation)


def check_arguments(name: str, arguments: Any, known: Known) -> None:
    """Check, at the client, what an operation is given; else raise InputError."""
    offer = find(name)
    words = ", ".join(kind.words for kind in offer.takes)
    if not _fits(offer, arguments, known):
        raise InputError(f"it asks for {name} with other arguments than {words}.")


def check_answer(name: str, value: Any, arguments: tuple[Any, ...], known: Known) -> None:
    """Check, at the server, what an operation answered to these arguments; else raise InputError."""
    offer, classes = find(name), known.setting.classes
    if name == "encoded_logits":
        sound = isinstance(value, tuple) and len(value) == 2 and (isinstance(value[0], Left) or value[0] == {})
        sound = sound and _bytes(value[1]) and _readable(value[1], arguments, classes)
    elif offer.gives == "predictions":
        sound = _tensor(value, (len(arguments[1]), classes), *FLOATS)
    elif offer.gives == "prototypes":
        sound = isinstance(value, tuple) and len(value) == 2
        sound = sound and _tensor(value[0], (classes, arguments[1]), *FLOATS) and _tensor(value[1], (classes,), *FLOATS)
    elif offer.gives == "numbers":
        sound = _tensor(value, (len(METRICS),), torch.float64) and _are_measures(value)
    elif name.endswith(REMEMBERING):
        sound = isinstance(value, tuple) and len(value) == 2 and _is_left(value[0], known.kinds)
        sound = sound and (isinstance(value[1], Left) or value[1] == {})
    else:
        sound = _is_left(value, known.kinds)
    if not sound:
        raise InputError(f"its answer to {name} is not what that gives: {offer.gives}.")


def _readable(value: encoded.Bytes, arguments: tuple[Any, ...], classes: int) -> bool:
    """Say whether bytes are of as many samples and classes as were asked for; InputError says how many they are not."""
    _, batch, encoding, k, _ = arguments
    read = decode(Knowledge(encoding, k), encoded.as_bytes(value), (len(batch), classes), True)
    return bool(read.isfinite().all())


def kinds_at(setting: Setting, n: int) -> Kinds:
    """Return the kinds of the tensors of client n's model, of which none is made."""
    with torch.device("meta"):
        module = setting.build(setting.by_id[n].architecture)
    return kinds_of(weights.state_of(module.to(DTYPES[setting.compute.dtype])))


def exchanges(method: str) -> frozenset[str]:
    """Return what the method declares to exchange, as the privacy table has it.

    Raises:
        InputError: if it was not tried on real clients.
    """
    if method not in TRIED:
        raise InputError(f"method {method[:80]!r} was not tried on real clients: choose from {', '.join(TRIED)}.")
    return METHODS[method].kind.exchanges


def check_leaves(name: str, method: str) -> None:
    """Check that what an operation gives away is what the method declares to exchange; else raise InputError.

    Whoever may have a model may have its predictions, which follow from it.
    """
    gives, allowed = find(name).gives, exchanges(method)
    if gives in ("model", "numbers") or gives in allowed or (gives == "predictions" and "parameters" in allowed):
        return
    raise InputError(
        f"it asks for {name}, which gives away {gives}, and {method} declares to exchange {_words(allowed)}."
    )


def check_sent(arguments: Any, method: str) -> None:
    """Check, at the client, that no model is sent where the method exchanges none; else raise InputError.

    A model of the server's making could be one whose predictions and losses tell of the samples it is tried on.
    """
    allowed = exchanges(method)
    if "parameters" not in allowed and _has_model(arguments):
        raise InputError(f"it sends a model, and {method} declares to exchange {_words(allowed)}.")


def _words(allowed: frozenset[str]) -> str:
    return ", ".join(sorted(allowed)) or "nothing"


def _has_model(value: Any) -> bool:
    return any(map(_has_model, value)) if isinstance(value, tuple) else isinstance(value, Mapping) and bool(value)


def _fits(offer: Offer, arguments: Any, known: Known) -> bool:
    if not isinstance(arguments, tuple) or not offer.needed <= len(arguments) <= len(offer.takes):
        return False
    return all(kind.holds(value, known) for kind, value in zip(offer.takes, arguments, strict=False))


def _are_measures(value: Tensor) -> bool:
    """Say whether numbers are those of an `Evaluation`: a loss that is finite, and shares."""
    named = dict(zip(METRICS, value, strict=True))
    loss = named.pop("loss")
    shares = torch.stack([share for name, share in named.items() if not (name in UNDEFINED and share.isnan())])
    return bool(loss.isfinite()) and bool(((shares >= 0) & (shares <= 1 + 1e-9)).all())


def _is_model(value: Any, kinds: Kinds) -> bool:
    return isinstance(value, Mapping) and kinds_of(value) == kinds


def _is_left(value: Any, kinds: Kinds) -> bool:
    """Say whether a value is a model that the client keeps, and whose tensors, where they came, are of these kinds."""
    if not isinstance(value, Left) or value.kinds != kinds:
        return False
    return value.model is None or kinds_of(value.model) == kinds
