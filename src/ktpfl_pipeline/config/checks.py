"""Checks of settings that are valid one by one but may not fit together: names, devices, privacy, adversaries.

Each function ``check_...`` returns None, or raises an `InputError` that names the value, the allowed values and how to
fix it. Messages begin with the name of the experiment, `name`, or with the path of the setting, `where`.
"""

import contextlib
import logging
import re
from collections.abc import Callable, Collection, Iterable, Iterator
from functools import partial

from ktpfl_pipeline.config.schema import ALL, BUT, NO_PUBLIC, OPEN_PART, REAL, RUN_BY_FLOWER, Experiment, Image
from ktpfl_pipeline.config.studies import COMPARE, PAPER
from ktpfl_pipeline.core.architectures import dealt
from ktpfl_pipeline.core.compatibility import Conflict, conflicts, problems
from ktpfl_pipeline.core.errors import InputError, listed, nearest
from ktpfl_pipeline.core.extensions import is_path, not_a_path
from ktpfl_pipeline.methods import METHODS, compared, dotted, find, title

logger = logging.getLogger(__name__)


@contextlib.contextmanager
def saying(where: str) -> Iterator[None]:
    """Prefix the message of any `InputError` that the block raises with `where`, the place in the configuration."""
    try:
        yield
    except InputError as error:
        raise InputError(f"{where}{error}") from error


ALWAYS = (*(compared(one_architecture)[0] for one_architecture in (False, True)), "local")
"""Methods that every comparison includes: KT-pFL for the experiment's `exchange`, and local-only training."""


def check_known(where: str, given: str, known: Collection[str]) -> None:
    """Check that the name `given` is in `known`. The error message suggests the most similar known name."""
    if given not in known:
        hint = nearest(given, known, f"choose from {', '.join(known)}.")
        raise InputError(f"{where} is {given!r}, which does not exist; {hint}")


def check_extension(where: str, given: str, known: Collection[str], find: Callable[[str], object]) -> None:
    """Check that the name `given` is in the registry `known`, or is a dotted path that `find` can import."""
    if given not in known and (meant := dotted(given)):
        raise not_a_path(f"{where} is {given!r}, which", meant)
    if ":" not in given:
        return check_known(where, given, known)
    with saying(f"{where}: "):
        find(given)


def check_names(name: str, experiment: Experiment) -> None:
    """Check that the named built-in architectures, methods, partition schemes, sources and devices exist."""
    from ktpfl_pipeline import models
    from ktpfl_pipeline.data import registry

    check_known(f"{name}.partition.scheme", experiment.partition.scheme, [*registry.SCHEMES, registry.NATURAL])
    for architecture in experiment.models():
        if not models.is_family(architecture):
            check_extension(f"{name}.architectures", architecture, models.MODELS, models.find)
    check_compare(name, experiment)
    called: dict[str, str] = {}
    if experiment.subject is not None:
        check_extension(f"{name}.subject", experiment.subject, list(METHODS), find)
    every = [*METHODS] * (ALL in experiment.compare) + experiment.named if any(map(is_path, experiment.named)) else []
    for method in (each for each in every if each not in experiment.left_out):
        if (other := called.setdefault(title(method), method)) != method:
            raise InputError(
                f"{name}.compare has {other} and {method}, and both are called {title(method)!r}: rename one."
            )
    for kind, known in (
        ("private", [*registry.SOURCES]),
        ("public", [*registry.SOURCES, OPEN_PART, NO_PUBLIC, "included"]),
    ):
        source = getattr(experiment, kind).source
        if (kind, source) == ("private", REAL):  # `check_here` raises an error if a command would run it
            continue
        where, given = f"{name}.{kind}.source", source.partition(":")[0]
        if registry.PATH.fullmatch(source):
            from ktpfl_pipeline.data import sources

            check_extension(where, source, known, sources.find)
            continue
        if registry.of_file(given):  # first, so that it is not read as a dotted path without a colon
            with saying(f"{where}: "):
                registry.split(source)
        check_extension(where, given, known, registry.split)
    check_device(f"{name}.compute.device", experiment.compute.device)


def check_together(name: str, experiment: Experiment) -> None:
    """Check that settings do not exclude each other, and that there is what they ask for."""
    from ktpfl_pipeline.core import executors
    from ktpfl_pipeline.core.rounds.newcomers import held_out

    if wrong := [*experiment.conflicts(), *problems(None, experiment)]:
        raise InputError(" ".join(f"{name}.{each}" for each in wrong))
    for architecture in experiment.pretrained:
        check_known(f"An architecture of {name}.pretrained", architecture, experiment.models())
    with saying(f"{name}."):
        if experiment.clients is not None:
            dealt(experiment.architectures, range(experiment.clients))
            experiment.adversaries.check(experiment.clients)
            held_out(range(experiment.clients), experiment.newcomers, 0)
        executors.create(experiment.compute)
        if experiment.image is not None:  # without it, the shape is known only after the data are loaded
            check_training(experiment, experiment.image)


def check_families(name: str, experiment: Experiment) -> None:
    """Check that models of other libraries exist. Only runs call this check: importing a library takes seconds."""
    from ktpfl_pipeline import models

    for architecture in filter(models.is_family, experiment.models()):
        with saying(f"{name}.architectures: "):
            models.find(architecture)


def check_device(where: str, device: str) -> None:
    if not re.fullmatch(r"auto|cpu|cuda(:\d+)?", device):
        raise InputError(f"{where} is {device!r}; choose auto, cpu, cuda or cuda:<number>.")
    kind, _, number = device.partition(":")
    if kind == "cuda":
        import torch

        if int(number or 0) >= (found := torch.cuda.device_count()):
            raise InputError(f"{where} is {device!r} and torch finds {found or 'no'} GPUs here; choose auto or cpu.")


def check_training(experiment: Experiment, image: Image) -> None:
    """Check that the images support the augmentation, and that private training supports the models."""
    from ktpfl_pipeline import models
    from ktpfl_pipeline.core import augmentation, kinds, privacy

    augmentation.check_channels(experiment.training.augmentation, image.channels)
    if experiment.training.privacy is not None:
        build = partial(models.build, shape=image.shape, classes=10)
        privacy.check_possible(experiment.models(), build, image.shape, kinds.IMAGES, experiment.compute)


def check_compare(name: str, experiment: Experiment) -> None:
    """Check the methods that `compare` names and those that it excludes."""
    for method in (*experiment.named, *experiment.left_out):
        check_extension(f"{name}.compare", method, [ALL, *METHODS], find)
    if experiment.left_out and ALL not in experiment.compare:
        raise InputError(
            f"{name}.compare leaves out {', '.join(experiment.left_out)} and does not have {ALL}: write "
            f"[{ALL}, {', '.join(f'{BUT}{each}' for each in experiment.left_out)}], or name the methods to compare."
        )
    always = [method for method in experiment.left_out if method in ALWAYS]
    if always:
        raise InputError(
            f"{name}.compare leaves out {', '.join(always)}, which every comparison has: leave out other methods."
        )
    if both := [method for method in experiment.left_out if method in experiment.named]:
        raise InputError(f"{name}.compare both names and leaves out {', '.join(both)}: keep one of the two.")


def warn_of_unlisted(name: str, experiment: Experiment) -> None:
    """Warn that the experiment's comparison leaves out methods of the user's own that it has settings for."""
    own = [method for method in experiment.methods if is_path(method) and method not in experiment.named]
    if own and ALL not in experiment.compare:
        logger.warning(
            f"{COMPARE}{name} leaves out {listed(own)} of {name}.methods, because {name}.compare does not list "
            f"{'it' if len(own) == 1 else 'them'}: add to the list what is to be compared, or set it to {ALL}."
        )


def check_methods(name: str, experiment: Experiment, methods: Iterable[str]) -> None:
    """Check that each of `methods` supports the settings. If `methods` is empty, check KT-pFL instead."""
    one = experiment.exchange == "parameters"
    default, other = (compared(one_architecture)[0] for one_architecture in (one, not one))
    excluded: dict[Conflict, list[str]] = {}
    for method in (named := (*methods,)) or [default]:
        for conflict in conflicts(find(method).kind, experiment):
            excluded.setdefault(conflict, []).append(method)
    for conflict, of in excluded.items():
        instead = "predictions" if one else "parameters"
        always = f" A comparison always has {default}; with exchange: {instead} it has {other} in its place."
        raise InputError(f"{name}.{conflict.text(of)}{'' if named else always}")


def check_configured(name: str, experiment: Experiment, study: str) -> None:
    """Check that `hyperparameters` is not ``tuned`` in an experiment of `study`, a sweep's or the paper's section."""
    if experiment.hyperparameters == "tuned":
        kind = "the paper" if study == PAPER else "a sweep"
        raise InputError(
            f"{name}.hyperparameters is tuned, and {kind} runs configured ones; set it to configured for {study}."
        )


def check_here(name: str, experiment: Experiment) -> None:
    if experiment.private.source == REAL:
        raise InputError(f"{name}.private.source is {REAL}. {RUN_BY_FLOWER}")
