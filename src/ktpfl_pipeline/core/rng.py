"""Named random streams: every draw is derived from (seed, purpose, round, client), never from a shared generator.

So the order of calls, the number of workers, partial cohorts and resuming change no draw, and a step that draws
nothing changes no other (see "Contracts" in docs/architecture.md).
"""

import hashlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch


def derive(seed: int, purpose: str, *names: int | str) -> int:
    """Return a 63-bit seed for a run's stream called `purpose` and `names` (a round, a client, an architecture)."""
    label = "/".join(str(part) for part in (seed, purpose, *names))
    return int.from_bytes(hashlib.sha256(label.encode()).digest()[:8], "big") >> 1


def stream(seed: int, purpose: str, *names: int | str) -> torch.Generator:
    """Return the CPU generator of the stream called `purpose` and `names`; see `derive`."""
    return torch.Generator().manual_seed(derive(seed, purpose, *names))


def drawn(purpose: str, share: float, clients: Iterable[int], seed: int) -> list[int]:
    """Return round(share · N) of the clients, ascending; a smaller share gives a subset of a larger one's.

    The stream called `purpose` is the run's, so the clients are the same for every method.
    """
    ids = sorted(clients)
    order = torch.randperm(len(ids), generator=stream(seed, purpose)).tolist()
    return sorted(ids[place] for place in order[: round(share * len(ids))])


@contextmanager
def seeded(seed: int, device: torch.device | None = None) -> Iterator[None]:
    """Seed torch's global generators (initialization, dropout) inside the block, and put them back after it.

    Only the CPU's and that of `device`: to ask for the state of a GPU starts CUDA, which a forked worker cannot.
    """
    gpus = [device] if device is not None and device.type == "cuda" else []
    with torch.random.fork_rng(gpus):
        torch.default_generator.manual_seed(seed)
        for gpu in gpus:
            with torch.cuda.device(gpu):
                torch.cuda.manual_seed(seed)
        yield
