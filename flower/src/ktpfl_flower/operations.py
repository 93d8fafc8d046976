"""The operations that a server can request from a real client, by name, and what the reply of each discloses.

The table is fixed, so no code travels. Clients check the arguments that they receive, and the server checks replies.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from ktpfl_flower import codes
from ktpfl_flower.wire import Left
from ktpfl_pipeline.core import weights
from ktpfl_pipeline.core.client import dp_sgd, features, operations
from ktpfl_pipeline.core.client.measures import METRICS, UNDEFINED
from ktpfl_pipeline.core.errors import InputError, plural
from ktpfl_pipeline.core.setting import DTYPES, Setting, Split
from ktpfl_pipeline.core.validation import LARGEST
from ktpfl_pipeline.core.weights import Params
from ktpfl_pipeline.methods import METHODS, fedproto

TRIED = (
    *("kt_pfl", "kt_pfl_paper_literal", "kt_pfl_authors", "sim_pfl", "topk_pfl", "fedmd", "feddf_soft", "pfeddf_soft"),
    *("ds_fl", "comet", "feddf", "pfeddf", "fedproto", "fedtgp", "fedavg", "fedavg_ft", "pfedhn", "kt_pfl_joint"),
    *("kt_pfl_params", "fedadam", "fedyogi", "fedadagrad", "local", "local_matched", "local_5x"),
)
"""Methods whose runs with real clients equal those in one process bit for bit, which a test shows. Other methods send a
part of a model or fewer predictions, or train by a rule that is not in the table of operations."""


@dataclass(frozen=True, eq=False)
class Known:
    """The facts against which a client's arguments and replies are checked.

    Attributes:
        setting: the setting of the federation.
        shapes: the tensors of this client's model, on torch's device `meta`.
    """

    setting: Setting
    shapes: Params


@dataclass(frozen=True)
class Kind:
    """The requirement on an argument.

    Attributes:
        words: the requirement in words.
        holds: ``holds(value, known)`` returns whether a value is allowed.
        optional: whether it may be left out at the end.
    """

    words: str
    holds: Callable[[Any, Known], bool]
    optional: bool = False


@dataclass(frozen=True)
class Offer:
    """One operation.

    Attributes:
        words: what the server requests, as in ``the request for local training``.
        perform: the function, ``perform(workspace, n, *arguments)``.
        gives: what the reply discloses; a ``model`` stays at the client, which replies with the model's number.
        takes: the arguments.
        trains: whether an operation that gives a model trains it, so that the reply has a loss.
    """

    words: str
    perform: Callable[..., Any]
    gives: Literal["model", "predictions", "prototypes", "numbers"]
    takes: tuple[Kind, ...]
    trains: bool = True


def _tensor(value: Any, shape: tuple[int | None, ...], *dtypes: torch.dtype) -> bool:
    """Return whether a value is a tensor of this shape, in which None is any size, and of one of the dtypes."""
    return (
        isinstance(value, Tensor)
        and value.dtype in dtypes
        and value.dim() == len(shape)
        and all(wanted in (None, size) for wanted, size in zip(shape, value.shape, strict=True))
    )


def _whole(value: Any, most: int) -> bool:
    return type(value) is int and 0 <= value <= most


def _indices(value: Any, known: Known) -> bool:
    if not _tensor(value, (None,), torch.int64) or not len(value):
        return False
    return bool(((value >= 0) & (value < len(known.setting.public))).all())


FLOATS = (torch.float32, torch.float64)
LOSS = 1e6
"""The largest loss that a client may report."""
COUNTED = 2**53
"""The largest count that a client may report; floats have these numbers exactly."""
MODEL = Kind("a model of its architecture", lambda value, known: _is_model(value, known.shapes))
ROUND = Kind("a round", lambda value, known: _whole(value, known.setting.rounds))
EPOCHS = Kind("a number of epochs", lambda value, known: value is None or _whole(value, LARGEST), optional=True)
SPLIT = Kind("train, validation or test", lambda value, known: value in get_args(Split))
BATCH = Kind("indices of public samples", _indices)
TEACHER = Kind("probabilities of classes", lambda value, known: _tensor(value, (None, known.setting.classes), *FLOATS))
CODE = Kind("encoded probabilities", lambda value, known: isinstance(value, tuple))  # `codes` checks it
WIDTH = Kind("a number of features", lambda value, known: _whole(value, LARGEST) and value > 0)
PROTOTYPES = Kind(
    "one prototype per class", lambda value, known: _tensor(value, (known.setting.classes, None), *FLOATS)
)
SHOWN = Kind("one flag per class", lambda value, known: _tensor(value, (known.setting.classes,), torch.bool))
FLAG = Kind("true or false", lambda value, known: isinstance(value, bool))
WEIGHT = Kind("a weight of 0 or more", lambda value, known: isinstance(value, int | float) and 0 <= value < LARGEST)

OPERATIONS = {
    "train": Offer("local training", operations.train, "model", (MODEL, ROUND, EPOCHS)),
    "train_privately": Offer("private local training", dp_sgd.train, "model", (MODEL, ROUND)),
    "distill": Offer("distillation", operations.distill, "model", (MODEL, TEACHER, BATCH, ROUND)),
    "distill_encoded": Offer("distillation", codes.distill, "model", (MODEL, CODE, BATCH, ROUND)),
    "logits": Offer("predictions", operations.logits, "predictions", (MODEL, BATCH)),
    "logits_encoded": Offer("predictions", codes.logits, "predictions", (MODEL, BATCH)),
    "evaluate": Offer("an evaluation", operations.evaluate, "numbers", (MODEL, SPLIT)),
    "class_means": Offer("prototypes", features.class_means, "prototypes", (MODEL, WIDTH)),
    "with_prototypes": Offer(
        "classification by prototypes",
        features.with_prototypes,
        "model",
        (MODEL, PROTOTYPES, SHOWN, FLAG),
        trains=False,
    ),
    "train_to_prototypes": Offer(
        "training toward prototypes",
        fedproto.train_client,
        "model",
        (MODEL, ROUND, PROTOTYPES, SHOWN, WEIGHT, EPOCHS),
    ),
}


COVERED = dp_sgd.COVERED | {codes.logits, codes.distill}
"""The operations that private training allows."""


def find(name: str) -> Offer:
    """Return an operation by its name; raise InputError if it does not exist."""
    if name not in OPERATIONS:
        raise InputError(
            f"it requests the operation {name[:80]!r}, which does not exist; a client offers {', '.join(OPERATIONS)}."
        )
    return OPERATIONS[name]


def check_request(name: str, arguments: Any, method: str, known: Known) -> None:
    """Check, at the client, what the server requests.

    A method that exchanges models may also have their predictions, which follow from the models.

    Raises:
        InputError: if the operation discloses what the method does not declare to exchange, private training does not
            cover it, or the arguments, in which the models replace their numbers, are not allowed.
    """
    offer, allowed, private = find(name), exchanges(method), known.setting.training.privacy is not None
    if private and (offer.perform not in COVERED or (name == "evaluate" and "train" in arguments)):
        raise InputError(f"it requests {name}, but the training of this run is private, and its ε would not cover it.")
    if name == "train_privately" and not private:
        raise InputError("it requests private training, but sent no settings for it.")
    free = {"model", "numbers", *allowed} | ({"predictions"} if "parameters" in allowed else set())
    if offer.gives not in free:
        raise InputError(
            f"it requests {name}, which discloses {offer.gives}, but {method} declares to exchange only "
            f"{_words(allowed)}."
        )
    needed = sum(not kind.optional for kind in offer.takes)
    whole = isinstance(arguments, tuple) and needed <= len(arguments) <= len(offer.takes)
    if not whole or not all(kind.holds(value, known) for kind, value in zip(offer.takes, arguments, strict=False)):
        words = ", ".join(kind.words for kind in offer.takes)
        raise InputError(f"it requests {name} with other arguments than {words}.")


def travels(method: str, wanted: bool) -> bool:
    """Return whether replies contain the models that they number: if the server wants them, and the method may."""
    return wanted and "parameters" in exchanges(method)


def check_answer(name: str, value: Any, arguments: tuple[Any, ...], known: Known, travels: bool) -> None:
    """Check, at the server, the result of an operation with these arguments.

    Raises:
        InputError: if it is not allowed, or has a model although none `travels`, or lacks one.
    """
    classes = known.setting.classes
    match find(name).gives:
        case "predictions":
            expected = f"predictions for {plural(len(arguments[1]), 'sample')} and {classes} classes"
            sound = _tensor(value, (len(arguments[1]), classes), *FLOATS) or name == "logits_encoded"
        case "prototypes":
            expected = f"a prototype of {arguments[1]} features and a flag for each of {classes} classes"
            means, owned = value if isinstance(value, tuple) and len(value) == 2 else (None, None)
            sound = _tensor(means, (classes, arguments[1]), *FLOATS) and SHOWN.holds(owned, known)
        case "numbers":
            expected = f"{len(METRICS)} measures: a loss from 0 to {LOSS:,.0f}, and shares from 0 to 1"
            sound = _tensor(value, (len(METRICS),), torch.float64) and _are_measures(value)
        case _:
            expected = f"the number of a stored model of its architecture, {'with' if travels else 'without'} the model"
            sound = isinstance(value, Left) and (value.model is not None) == travels
            sound = sound and (value.model is None or _is_model(value.model, known.shapes))
    if not sound:
        raise InputError(f"expected {expected}.")


def shapes_of(setting: Setting, architecture: str) -> Params:
    """Return the tensors of an architecture's models, on torch's device `meta`."""
    with torch.device("meta"):
        module = setting.build(architecture)
    return weights.state_of(module.to(DTYPES[setting.compute.dtype]))


def exchanges(method: str) -> frozenset[str]:
    """Return what a method declares to exchange, as in the table of what leaves a client.

    Raises:
        InputError: if the method is not supported with real clients.
    """
    if method not in TRIED:
        raise InputError(
            f"The method {method[:80]!r} is not supported with real clients. Choose from {', '.join(TRIED)}."
        )
    return METHODS[method].kind.exchanges


def check_sent(arguments: Any, method: str) -> None:
    """Check, at the client, that the server sends a model only if the method exchanges models; else raise InputError.

    The predictions and losses of a model that the server made could reveal the client's samples.
    """
    allowed = exchanges(method)
    if "parameters" not in allowed and _has_model(arguments):
        raise InputError(f"it sends a model, but {method} declares to exchange only {_words(allowed)}.")


def _words(allowed: frozenset[str]) -> str:
    return ", ".join(sorted(allowed)) or "nothing"


def _has_model(value: Any) -> bool:
    return any(map(_has_model, value)) if isinstance(value, tuple) else isinstance(value, Mapping) and bool(value)


def _are_measures(value: Tensor) -> bool:
    """Return whether numbers can be an `Evaluation`: a loss, and shares."""
    named = dict(zip(METRICS, value, strict=True))
    loss = named.pop("loss")
    shares = torch.stack([share for name, share in named.items() if not (name in UNDEFINED and share.isnan())])
    return bool(0 <= loss <= LOSS) and bool(((shares >= 0) & (shares <= 1 + 1e-9)).all())


def _is_model(value: Any, shapes: Params) -> bool:
    if not isinstance(value, Mapping) or value.keys() != shapes.keys():
        return False
    if not all(each.dtype == value[name].dtype and each.shape == value[name].shape for name, each in shapes.items()):
        return False
    counts = [tensor for tensor in value.values() if not tensor.is_floating_point() and tensor.numel()]
    return all(bool(((counted >= 0) & (counted <= COUNTED)).all()) for counted in counts)  # BatchNorm counts batches
