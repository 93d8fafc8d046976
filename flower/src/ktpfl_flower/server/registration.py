"""What a client sends when it registers, and whether it fits the server and the other clients."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from math import prod
from typing import Annotated, Any

from annotated_types import Ge, Le, Lt, MaxLen, MinLen

from ktpfl_flower.alike import Data, versions
from ktpfl_flower.client.client_file import Name, Names, check_architecture, understood
from ktpfl_flower.wire import Packet
from ktpfl_pipeline.core.errors import InputError

CHANGING = {"told", "kept", "last", "address"}
"""Fields of a registration that may change during a run."""
NUMBERS = 2**63
"""Numbers of models and messages are below this."""
PIXELS = 2**31
"""The most values of one sample, and the most samples of a split."""
Number = Annotated[int, Ge(0), Lt(NUMBERS)]


@dataclass(frozen=True)
class Registration:
    """What a client sends when it registers.

    Attributes:
        client: its number.
        name: its name in reports.
        architecture: of its model.
        data: the kind of its samples, and their vocabulary.
        sizes: numbers of samples for training, validation and testing.
        shape: of one sample.
        classes: names of its classes, in the order of its labels.
        versions: as `alike.versions` returns them.
        fingerprint: of its samples; it changes with them and reveals nothing else.
        told: whether it knows the settings of the run.
        kept: numbers of the stored models of that run that it can read.
        last: the number of the last message that it accepted.
        address: where messages reach it; not from the client.
    """

    client: Annotated[int, Ge(0), Lt(2**31)]
    name: Name
    architecture: Annotated[str, MaxLen(200)]
    data: Data
    sizes: Annotated[list[Annotated[int, Ge(0), Le(PIXELS)]], MinLen(3), MaxLen(3)]
    shape: Annotated[list[Annotated[int, Ge(1), Le(2**16)]], MinLen(1), MaxLen(4)]
    classes: Annotated[Names, MinLen(1)]
    versions: dict[str, str]
    fingerprint: Annotated[str, MaxLen(64)]
    told: bool = False
    kept: list[Number] = field(default_factory=list)
    last: Number = 0
    address: int = 0

    @property
    def who(self) -> str:
        """The client in messages."""
        return f"Client {self.client} {self.name}".rstrip() + f" (node {self.address})"

    def lasting(self) -> dict[str, Any]:
        """Return the fields that must not change during a run."""
        return {name: value for name, value in asdict(self).items() if name not in CHANGING}


def registration(address: int, packet: Packet) -> Registration:
    """Return the registration in a client's reply.

    Raises:
        InputError: if the client refused, or a value is missing, unknown or not allowed.
    """
    who = f"The client at node {address}"
    if "refused" in packet.values:
        raise InputError(f"{who} refused to register: {packet.values['refused']}")
    return understood(Registration, {**packet.values, "address": address}, who)


def other_versions(said: Registration) -> str:
    """Return how a client's versions differ from the server's, as a predicate; empty if they are equal."""
    if (ours := versions()) == said.versions:
        return ""
    fix = "install the server's versions"
    if {**said.versions, "processor": ours["processor"]} == ours:
        fix = "use the server's kind of processor, because others round differently"
    return f"has {said.versions}, but the server has {ours}; {fix}"


def check_model(said: Registration) -> None:
    """Check that a client's samples are not too large, and that its architecture exists; else raise InputError."""
    if prod(said.shape) > PIXELS:
        raise InputError(
            f"{said.who} has {said.data.kind} of shape {said.shape}, which is too large. Set image in its file to a "
            "smaller size."
        )
    check_architecture(said.architecture, said.who)


def check_data(said: Registration, public: Data) -> None:
    """Check that a client has the public set's kind of samples and its vocabulary.

    Raises:
        InputError: naming the client, and what both have.
    """
    if (kind := said.data.kind) != public.kind:
        raise InputError(
            f"{said.who} has {kind}, but the public set has {public.kind}. The server and all clients must "
            "have samples of one kind."
        )
    if (theirs := said.data.vocabulary) != public.vocabulary:
        raise InputError(
            f"{said.who} has another vocabulary than the public set ({theirs}; the public set: {public.vocabulary}). "
            "Use one vocabulary at the server and at all clients: the same arrays 'vocabulary' and 'padding' in .npz "
            "files, or the same text.tokenizer."
        )


def check_classes(said: Registration, others: Sequence[Sequence[str]]) -> None:
    """Check that labels mean the same at a client as at the others: one list of names must be the start of the other.

    Raises:
        InputError: naming the client and the first classes that differ.
    """
    for known in filter(None, others):
        for label, (ours, theirs) in enumerate(zip(known, said.classes, strict=False)):
            if ours != theirs:
                whole = sorted({*known, *said.classes})
                raise InputError(
                    f"{said.who} uses label {label} for {theirs!r}, but other clients use it for {ours!r}. "
                    "Put the same list of classes into all clients' files, for example class_names: "
                    f"[{', '.join(whole)}]."
                )
