"""The arithmetic of runs: the settings of `compute`, or for `auto` the fastest arithmetic in a short trial.

An arithmetic is a dtype and a memory format. They are ordered from plain to less plain: float32, TF32, bfloat16, and
contiguous before channels last. The times of a trial are kept in the user's cache folder, by machine. The choice for
the runs of an experiment is kept next to their checkpoints, so that a run continues with the arithmetic with which it
started, on any machine.
"""

import contextlib
import json
import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import platformdirs
import torch

from ktpfl_pipeline import models, tracking
from ktpfl_pipeline.config.schema import Experiment
from ktpfl_pipeline.core import privacy, settings
from ktpfl_pipeline.core.architectures import dealt
from ktpfl_pipeline.core.client.trial import step_seconds
from ktpfl_pipeline.core.dataset import LabeledDataset
from ktpfl_pipeline.core.errors import InputError
from ktpfl_pipeline.core.machine.files import alone, content_of, replacing
from ktpfl_pipeline.core.machine.resources import processor
from ktpfl_pipeline.data.federated import FederatedData

logger = logging.getLogger(__name__)
MARGIN = 1.05
"""Another arithmetic is chosen only if the plainest takes more than this many times as long; less may be noise."""
CHOSEN = "compute.json"
"""The file next to an experiment's checkpoints that records the choices of `auto` for its runs."""


class Arithmetic(NamedTuple):
    """A dtype and a memory format of `Compute`."""

    dtype: settings.Dtype
    memory_format: settings.MemoryFormat

    def __str__(self) -> str:
        return f"{self.dtype} {self.memory_format}"


_said: set[str] = set()


def settle(experiment: Experiment, data: FederatedData, name: str = "") -> Experiment:
    """Return the experiment with one dtype and one memory format for all of its runs.

    Without `auto` there is no trial. A choice of `auto` is logged once per process. `name` is the experiment, sweep or
    tuning whose runs continue with the arithmetic with which they started; an empty name has no earlier runs.
    """
    ways = possible(experiment, data)
    way = ways[0] if len(ways) == 1 else _chosen(experiment, data, name, ways)
    return replace(experiment, compute=replace(experiment.compute, **way._asdict()))


def _chosen(experiment: Experiment, data: FederatedData, name: str, ways: list[Arithmetic]) -> Arithmetic:
    """Return one of `ways`: the arithmetic of earlier runs, or else the result of a trial (`fastest`)."""
    clients, device = _clients(experiment, data), experiment.compute.place().type
    counts = ", ".join(f"{count} {each}" for each, count in sorted(clients.items()))
    # Everything that a choice depends on, except the machine, because runs may continue on another machine.
    question = f"{name}: {' or '.join(map(str, ways))} for {counts}, {_step(experiment, data)}, {device}"
    folder = tracking.current().checkpoints if name else None
    place = folder / name / CHOSEN if folder else None
    with alone(place.parent) if place else contextlib.nullcontext():  # two processes could choose differently
        kept = _read(place).get(question) if place else None
        if begun := [way for way in ways if str(way) == kept]:
            _say(question, f"{name}.compute is {kept}, as auto chose when its runs started.")
            return begun[0]
        times = trial(experiment, data, ways)
        totals = {way: sum(clients[each] * times[each][i] for each in clients) for i, way in enumerate(ways)}
        chosen = fastest(ways, totals)
        if place:
            _write(place, {**_read(place), question: str(chosen)})
    rows = {each: zip(ways, own, strict=True) for each, own in times.items()}
    told = [f"{each}: {', '.join(f'{way} {1e3 * s:.3g}' for way, s in row)}" for each, row in rows.items()]
    _say(question, f"compute is {chosen}, as auto chose. Milliseconds a step, {'; '.join(told)}.")
    return chosen


def possible(experiment: Experiment, data: FederatedData) -> list[Arithmetic]:
    """Return the arithmetics between which the settings leave a choice, the plainest first; usually only one.

    `auto` allows float32, and TF32 on a GPU. `auto:bfloat16` also allows bfloat16 on processors that have it. Channels
    last is tried only for images, because features have no channels. Private training excludes `privacy.EXCLUDED`.
    """
    asked = experiment.compute
    excluded = privacy.EXCLUDED if experiment.training.privacy else {}
    dtypes: list[settings.Dtype] = [asked.dtype]
    if asked.dtype.startswith("auto"):
        device = asked.place().type
        dtypes = ["float32"]
        if device == "cuda" and "tf32" not in excluded:
            dtypes.append("tf32")
        if asked.dtype == "auto:bfloat16" and settings.has_bfloat16(device) and "bfloat16" not in excluded:
            dtypes.append("bfloat16")
    orders: list[settings.MemoryFormat] = [asked.memory_format]
    if asked.memory_format == "auto":
        orders = ["contiguous"]
        if data.private.kind.pixels and "channels_last" not in excluded:
            orders.append("channels_last")
    return [Arithmetic(dtype, order) for dtype in dtypes for order in orders]


def fastest(ways: Sequence[Arithmetic], seconds: Mapping[Arithmetic, float]) -> Arithmetic:
    """Return the fastest of `ways`, or the first, which is the plainest, if the fastest gains less than `MARGIN`."""
    best = min(ways, key=seconds.__getitem__)
    return ways[0] if seconds[ways[0]] <= MARGIN * seconds[best] else best


def trial(experiment: Experiment, data: FederatedData, tried: Sequence[Arithmetic]) -> dict[str, list[float]]:
    """Return the seconds of a training step in each arithmetic, by architecture; known times come from the cache."""
    place = Path(platformdirs.user_cache_dir("ktpfl_pipeline", appauthor=False)) / "trials.json"
    device, known = experiment.compute.place(), _read(place)
    named = torch.cuda.get_device_name(device) if device.type == "cuda" else processor()
    machine = f"{named}, torch {torch.__version__}, {experiment.compute.threads} threads"
    found: dict[str, list[float]] = {}
    for architecture in _clients(experiment, data):
        step = f"{architecture}, {_step(experiment, data)}"
        seconds = known.setdefault(machine, {}).setdefault(step, {})
        if not all(isinstance(seconds.get(str(way)), float) for way in tried):
            timed = _timed(experiment, data, architecture, tried)
            seconds.update(zip(map(str, tried), timed, strict=True))
            with contextlib.suppress(InputError):  # the cache is optional
                _write(place, known)
        found[architecture] = [seconds[str(way)] for way in tried]
    return found


def _timed(experiment: Experiment, data: FederatedData, architecture: str, tried: Sequence[Arithmetic]) -> list[float]:
    own = next(iter(data.seeds.values()))
    taken = data.private.take(max((client.train for client in own.partition.values()), key=len))
    samples = LabeledDataset(own.standardized(taken.inputs), taken.labels)
    classes, batch = data.private.classes, experiment.training.batch_size
    build = partial(models.build, shape=data.private.shape, classes=classes, weights=data.pretrained)
    computes = [replace(experiment.compute, **way._asdict()) for way in tried]
    return step_seconds(build, architecture, samples, classes, batch, computes)


def _clients(experiment: Experiment, data: FederatedData) -> Counter[str]:
    own = next(iter(data.seeds.values()))
    return Counter(dealt(experiment.architectures, sorted(own.partition)).values())


def _step(experiment: Experiment, data: FederatedData) -> str:
    """Return what the time of a step depends on, in addition to the architecture and the machine."""
    shape = "x".join(map(str, data.private.shape))
    return f"{shape}, {data.private.classes} classes, batches of {experiment.training.batch_size}"


def _say(question: str, line: str) -> None:
    """Log a line once per question, because every method of a comparison asks the same question."""
    if question not in _said:
        logger.info(line)
    _said.add(question)


def _read(place: Path) -> dict[str, Any]:
    """Return the content of a JSON file of this module; empty if the file is missing or damaged."""
    try:
        return dict(json.loads(content_of(place)))
    except (OSError, ValueError, TypeError):
        return {}


def _write(place: Path, content: dict[str, Any]) -> None:
    with replacing(place, summed=True) as partial_file:
        partial_file.write_text(json.dumps(content, indent=1), encoding="utf-8")
