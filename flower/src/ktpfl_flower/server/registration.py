"""The description with which a client registers, and the transport of messages."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Annotated, Any, Protocol

from annotated_types import Ge, Le, MaxLen, MinLen

from ktpfl_flower.alike import Data
from ktpfl_flower.client.client_file import Name, Names
from ktpfl_flower.wire import Packet
from ktpfl_pipeline.core.errors import named
from ktpfl_pipeline.core.validation import Natural, Seed


@dataclass(frozen=True)
class Registration:
    """The description that a client sends when it registers.

    Attributes:
        client: its number.
        name: its name in reports.
        architecture: the architecture of its model.
        data: the kind of its samples, and their vocabulary.
        sizes: the numbers of samples for training, validation and testing.
        shape: the shape of one sample.
        classes: the names of its classes, in the order of its labels.
        versions: the versions that `alike.versions` returns.
        fingerprint: a keyed hash of its samples; it changes with the samples and reveals nothing else.
        told: whether it knows the settings of the run.
        kept: numbers of the stored models of that run that it can read.
        last: the number of the last message that it accepted.
        address: the address for messages to the client, which the server adds.
    """

    client: Natural
    name: Name
    architecture: Annotated[str, MaxLen(200)]
    data: Data
    sizes: Annotated[list[Natural], MinLen(3), MaxLen(3)]
    shape: Annotated[list[Annotated[int, Ge(1), Le(2**16)]], MinLen(1), MaxLen(4)]
    classes: Annotated[Names, MinLen(1)]
    versions: dict[str, str]
    fingerprint: Annotated[str, MaxLen(64)]
    told: bool = False
    kept: list[Seed] = field(default_factory=list)
    last: Seed = 0
    address: int = 0

    @property
    def who(self) -> str:
        """The client in messages."""
        return f"{named(self.client, {self.client: self.name})} at node {self.address}"

    def lasting(self) -> dict[str, Any]:
        """Return the fields that must not change during a run."""
        changing = ("told", "kept", "last", "address")
        return {name: value for name, value in asdict(self).items() if name not in changing}


class Link(Protocol):
    """The transport of messages; a client is identified by an address.

    Attributes:
        place: where clients connect, in words.
        pulse: seconds between two requests for new replies.
    """

    place: str
    pulse: float

    def addresses(self) -> list[int]:
        """Return the addresses of the clients that are connected now."""

    def send(self, packets: Mapping[int, Packet]) -> list[str]:
        """Send a message to each address, and return the messages' names."""

    def replies(self, names: list[str]) -> Iterator[tuple[str, Packet]]:
        """Yield the replies to these messages that have arrived; ``silent`` has the reason if there will be none."""
