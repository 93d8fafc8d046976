"""The private and public samples of an experiment: reading, drawing, and conversion to one shape."""

import logging
from collections.abc import Callable
from dataclasses import replace
from functools import wraps
from math import prod
from pathlib import Path
from typing import Any, ParamSpec

import numpy as np
import torch

from ktpfl_pipeline.config.schema import NO_PUBLIC, OPEN_PART, Experiment
from ktpfl_pipeline.core import kinds
from ktpfl_pipeline.core.errors import InputError, listed, plural
from ktpfl_pipeline.core.machine.resources import used_up_by
from ktpfl_pipeline.core.rng import derive
from ktpfl_pipeline.core.warnings import collected, warn
from ktpfl_pipeline.data import sources
from ktpfl_pipeline.data.federated import PublicSet
from ktpfl_pipeline.data.inspection import of_samples, pixels
from ktpfl_pipeline.data.owned import OwnedDataset
from ktpfl_pipeline.data.partition import NATURAL, draw_stratified
from ktpfl_pipeline.data.registry import SOURCES
from ktpfl_pipeline.data.sources import Reading, load, missing, npz, sized
from ktpfl_pipeline.data.sources.adaptation import adapt, converted
from ktpfl_pipeline.data.sources.downloads import DownloadError
from ktpfl_pipeline.data.sources.tokens import check_ids

logger = logging.getLogger(__name__)
P = ParamSpec("P")


def keeping_warnings(make: Callable[P, Any]) -> Callable[P, Any]:
    """Return a function whose result also has the warnings that were given while it was made."""

    @wraps(make)
    def kept(*args: P.args, **kwargs: P.kwargs) -> Any:
        with collected() as found:
            made = make(*args, **kwargs)
        return replace(made, warnings=tuple(found))

    return kept


@used_up_by("Reading the private samples")
@keeping_warnings
def load_private(experiment: Experiment, raw_folder: Path) -> Any:
    """Return the private samples, (M, ...), with the experiment's channels and image size, and with owners if known."""
    source, reading = experiment.private.source, Reading.of(experiment.image, experiment.text)
    try:
        samples = load(source, raw_folder, experiment.private.classes, reading)
    except DownloadError as error:
        public = experiment.public.source
        archives = missing(public, raw_folder) if public.partition(":")[0] in SOURCES and public != source else ""
        if not archives:
            raise
        raise DownloadError(f"{error} The public source {public} is missing too: put {archives}.") from error
    check_owners(experiment, samples, raw_folder)
    if samples.labels.min() == samples.labels.max():
        raise InputError(
            f"All samples of {source} that are kept have the same class. Name at least two classes in private.classes."
        )
    if (total := experiment.private_samples(len(samples))) != len(samples):
        samples = _draw(samples, total)
    samples = _without_gaps(samples, source)
    given = _shaped(experiment, samples.inputs)
    of_samples(replace(samples, inputs=given), source)
    native = None if reading.size and sized(source) else tuple(given.shape[1:])
    return replace(samples, inputs=_adapted(experiment, given, "private", source), native=native)


@used_up_by("Reading the public samples")
@keeping_warnings
def load_public(experiment: Experiment, raw_folder: Path, private: Any) -> Any:
    """Return the inputs from which the public set is drawn, (M, ...), in the shape of private inputs: a `PublicSet`.

    There are no inputs if the public source is ``none``.
    """
    source = experiment.public.source
    if source == OPEN_PART:
        return PublicSet(private.inputs)
    if source == NO_PUBLIC:
        return PublicSet(private.inputs[:0])
    reading = Reading.of(experiment.image, experiment.text).of_public(private)
    public = sources.load_public(source, experiment.private.source, raw_folder, reading)
    if narrow := pixels(public):
        warn("Pixels", f"{source}: {narrow}")
    public = _adapted(experiment, _shaped(experiment, public), "public", source)
    if (ours := kinds.described(private.inputs)) != (theirs := kinds.described(public)):
        raise InputError(
            f"the public source {source!r} has {theirs} and the private one {ours}: choose one of the same shape, or"
            " bring images to one with image: {channels: 3, size: 64}, say."
        )
    if private.vocabulary is not None:
        check_ids(public, private.vocabulary.size, f"the public source {source!r}")
    return PublicSet(public)


def _without_gaps(samples: Any, source: str) -> Any:
    """Return samples whose classes are numbered from 0 without gaps and named by their original labels.

    If the source names its classes, all classes remain. A warning then lists the classes without samples.
    """
    present, labels = samples.labels.unique(return_inverse=True)
    absent = sorted(set(range(samples.classes)).difference(present.tolist()))
    if not absent:
        return samples
    few = f"{source}: no sample has class{'es' * (len(absent) > 1)}"
    if (names := samples.class_names) is not None:
        warn(
            "Absent classes",
            f"{few} {listed([names[label] for label in absent])}; the source names them, so models have {len(names):,} "
            "classes. To change this, list the existing ones in private.classes.",
        )
        return samples
    logger.info(f"{few} {listed(absent)}, so models have {len(present):,} classes, which reports name by their labels.")
    return replace(samples, labels=labels, class_names=tuple(map(str, present.tolist())))


def check_owners(experiment: Experiment, samples: Any, raw_folder: Path) -> None:
    """Raise InputError if the partition is ``natural`` and the samples have no owners.

    For an ``.npz`` file the message lists its arrays.
    """
    if experiment.partition.scheme != NATURAL or isinstance(samples, OwnedDataset):
        return
    source = experiment.private.source
    name, _, argument = source.partition(":")
    has = f" (its arrays are {', '.join(npz.names(argument, raw_folder))})" if name == "npz" else ""
    raise InputError(
        f"partition.scheme is natural, and the samples of the private source {source!r} have no owners{has}: choose"
        " one with owners (an .npz file with an array 'clients', a folder per client), or another scheme."
    )


def _shaped(experiment: Experiment, inputs: Any) -> Any:
    """Return inputs, (M, F), in the shape `private.shape` if the experiment has it.

    Raises InputError if the inputs are texts, or their number of values does not fit the shape.
    """
    shape = experiment.private.shape
    if shape is None or tuple(inputs.shape[1:]) == tuple(shape):
        return inputs
    if kinds.of(inputs) is kinds.TOKENS:
        raise InputError(f"private.shape is {shape}, and the private samples are texts in tokens: leave it out.")
    if prod(shape) != prod(inputs.shape[1:]):
        raise InputError(
            f"private.shape is {shape}, which is {plural(prod(shape), 'value')}, and a sample of the source has"
            f" {prod(inputs.shape[1:]):,}, of shape {list(inputs.shape[1:])}: correct it, or leave it out."
        )
    return inputs.reshape(-1, *shape)


def _adapted(experiment: Experiment, inputs: Any, whose: str, source: str) -> Any:
    """Return images with the experiment's channels and size, and log a conversion. Without `image` nothing changes."""
    if experiment.image is None:
        return inputs
    if not (kind := kinds.of(inputs)).pixels:
        fix = "set image: null"
        if whose == "public":  # private samples are converted first, so they are images
            fix = "the private source has images, so choose a public source of images, such as open_part"
        raise InputError(
            f"image has channels and size, and the {whose} source {source!r} has {kind.name}, not images: {fix}."
        )
    if tuple(inputs.shape[1:]) != experiment.image.shape:
        logger.info(f"Images of {source}: {converted(inputs.shape[1:], experiment.image.shape)}.")
    return adapt(inputs, experiment.image.shape, f"images of the {whose} source {source!r}")


def _draw(samples: Any, total: int) -> Any:
    """Return `total` samples, drawn in proportion to the classes. All seeds get the same samples.

    Raises InputError if there are too few samples, or a class would lose all of its samples.
    """
    if total > len(samples):
        raise InputError(
            f"private.samples is {total:,} and there are {len(samples):,} private samples: lower it, or take all with "
            "private.samples: null."
        )
    rng = np.random.default_rng(derive(0, "private samples"))
    drawn = samples.take(torch.from_numpy(draw_stratified(samples.labels.numpy(), total, rng)).nonzero().flatten())
    lost = sorted(set(samples.labels.tolist()) - set(drawn.labels.tolist()))
    if lost:
        raise InputError(f"private.samples is {total:,}, which leaves class {lost[0]} without a sample: raise it.")
    return drawn
