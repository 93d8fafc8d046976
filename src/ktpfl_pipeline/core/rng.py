"""Named random streams: every draw is derived from (seed, purpose, round, client), never from a shared generator.

So draws do not depend on the order of calls, the number of workers, the cohort, or whether a run was resumed. Draws of
one purpose do not change if another purpose is added or removed (see "Contracts" in docs/architecture.md).
"""

import hashlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch

from ktpfl_pipeline.core.shares import rounded


def derive(seed: int, purpose: str, *names: int | str) -> int:
    """Return the 63-bit seed of a run's stream, which `purpose` and `names` identify.

    `names` are a round, a client or an architecture, for example.
    """
    label = "/".join(str(part) for part in (seed, purpose, *names))
    return int.from_bytes(hashlib.sha256(label.encode()).digest()[:8], "big") >> 1


def stream(seed: int, purpose: str, *names: int | str) -> torch.Generator:
    """Return the CPU generator of the stream that `purpose` and `names` identify; see `derive`."""
    return torch.Generator().manual_seed(derive(seed, purpose, *names))


def drawn(purpose: str, share: float, clients: Iterable[int], seed: int) -> list[int]:
    """Return round(share · N) ids of the N clients, ascending. A smaller share draws a subset of those of a larger one.

    The draw depends only on `seed`, `purpose` and the ids, so it is the same for every method.
    """
    ids = sorted(clients)
    order = torch.randperm(len(ids), generator=stream(seed, purpose)).tolist()
    return sorted(ids[place] for place in order[: rounded(share, len(ids))])


@contextmanager
def seeded(seed: int, device: torch.device | None = None) -> Iterator[None]:
    """Seed torch's global generators (initialization, dropout) inside the block, and restore their states after it.

    Only the generators of the CPU and of `device` are seeded. Reading the state of a GPU's generator would start CUDA,
    and CUDA cannot start in a forked worker.
    """
    gpus = [device] if device is not None and device.type == "cuda" else []
    with torch.random.fork_rng(gpus):
        torch.default_generator.manual_seed(seed)
        for gpu in gpus:
            with torch.cuda.device(gpu):
                torch.cuda.manual_seed(seed)
        yield
