"""A message as bytes: a text, and named arrays with dtype and shape. Loads fast, without torch and Flower."""

import json
from dataclasses import dataclass, field

LENGTH = 8
"""Size in bytes of the header's length, which comes first."""


@dataclass(frozen=True)
class Frame:
    """One message.

    Attributes:
        text: JSON.
        arrays: by name: dtype, shape, and the values as bytes in C order.
    """

    text: str
    arrays: dict[str, tuple[str, tuple[int, ...], bytes]] = field(default_factory=dict)

    def to_bytes(self) -> bytes:
        """Return the message as bytes: length of the header, header, arrays one after another."""
        arrays = [[name, dtype, list(shape), len(data)] for name, (dtype, shape, data) in self.arrays.items()]
        header = json.dumps({"text": self.text, "arrays": arrays}).encode()
        return b"".join([len(header).to_bytes(LENGTH, "big"), header, *(data for *_, data in self.arrays.values())])

    @classmethod
    def from_bytes(cls, data: bytes) -> "Frame":
        """Return the message that `to_bytes` wrote.

        Raises:
            ValueError: if the bytes are not a message.
        """
        end = LENGTH + int.from_bytes(data[:LENGTH], "big")
        try:
            header = json.loads(data[LENGTH:end])
            text, listed = header["text"], [(str(n), str(d), tuple(s), int(size)) for n, d, s, size in header["arrays"]]
        except (KeyError, TypeError, RecursionError) as error:
            raise ValueError("The header of a message cannot be read.") from error
        arrays = {}
        for name, dtype, shape, size in listed:
            if size < 0 or end + size > len(data):
                raise ValueError("A message is shorter than its header states.")
            arrays[name] = dtype, shape, data[end : end + size]
            end += size
        return cls(str(text), arrays)
