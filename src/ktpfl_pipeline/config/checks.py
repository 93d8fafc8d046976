"""What does not fit together in settings whose form is right: names, devices, privacy, adversaries.

Each function returns nothing, or raises an `InputError` that names the value, what is allowed and how to fix it.
`parsing` calls them; `check_methods` needs to know which methods are run.
"""

import difflib
import re
from collections.abc import Callable, Collection, Iterable
from functools import partial
from typing import Any

from ktpfl_pipeline.config.schema import Compute, Experiment
from ktpfl_pipeline.core.errors import InputError

HOMO = "homo_"
"""What the names of experiments begin with in which all clients have one architecture."""


def check_repeats(where: str, values: list[Any], kind: str) -> None:
    """Check that a list has each value once.

    Args:
        where: the path to the list, for the message.
        values: the list.
        kind: what one of them is called, for the message.
    """
    for i, value in enumerate(values):
        if value in values[:i]:
            raise InputError(f"{where} has {value} twice; give each {kind} once.")


def check_known(where: str, given: str, known: Any) -> None:
    """Check that a name exists; the message suggests the nearest one that does.

    Args:
        where: the path to the name, for the message.
        given: the name.
        known: all names that exist.
    """
    if given not in known:
        near = difflib.get_close_matches(given, list(known), n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"choose from {', '.join(known)}."
        raise InputError(f"{where} is {given!r}, which does not exist; {hint}")


def check_names(name: str, experiment: Experiment) -> None:
    """Check that architectures, schemes, sources, devices and workers exist."""
    from ktpfl_pipeline.data import sources
    from ktpfl_pipeline.data.partition import SCHEMES
    from ktpfl_pipeline.models import MODELS, find

    check_known(f"{name}.partition.scheme", experiment.partition.scheme, SCHEMES)
    for architecture in experiment.architectures:
        check_extension(f"{name}.architectures", architecture, MODELS, find)
    for kind, known in (("private", sources.SOURCES), ("public", [*sources.SOURCES, "open_part"])):
        source = getattr(experiment, kind).source
        given = source if sources.PATH.fullmatch(source) else source.partition(":")[0]
        check_extension(f"{name}.{kind}.source", given, known, sources.find)
    check_device(f"{name}.compute.device", experiment.compute.device)
    check_workers(name, experiment.compute)


def check_extension(where: str, given: str, known: Collection[str], find: Callable[[str], Any]) -> None:
    """Check that a name is in a registry, or is a dotted path that leads to something of use.

    Args:
        where: the setting.
        given: its value.
        known: the registry.
        find: imports what a dotted path names.

    Raises:
        InputError: naming the setting, its value and what is allowed.
    """
    if ":" not in given:
        return check_known(where, given, known)
    try:
        find(given)
    except InputError as error:
        raise InputError(f"{where}: {error}") from None


def check_architectures(name: str, experiment: Experiment) -> None:
    """Check for one architecture where methods combine models, which these would do only when it is their turn."""
    given = list(dict.fromkeys(experiment.architectures))
    if name.startswith(HOMO) and len(given) > 1:
        raise InputError(
            f"{name}.architectures is {', '.join(given)}; its methods combine the clients' models, which needs one "
            f"architecture: name one, as in [{given[0]}], or take {name.replace(HOMO, 'hetero_', 1)}."
        )


def check_device(where: str, device: str) -> None:
    """Check that a device exists on this machine."""
    import torch

    if not re.fullmatch(r"auto|cpu|cuda(:\d+)?", device):
        raise InputError(f"{where} is {device!r}; choose auto, cpu, cuda or cuda:<number>.")
    kind, _, number = device.partition(":")
    if kind == "cuda" and int(number or 0) >= (found := torch.cuda.device_count()):
        raise InputError(f"{where} is {device!r} and torch finds {found or 'no'} GPUs here; choose auto or cpu.")


def check_workers(name: str, compute: Compute) -> None:
    """Check that there is an executor for these workers; see `executors.create`."""
    from ktpfl_pipeline.core import executors, setting

    place = setting.Compute(compute.device).place()
    try:
        executors.create(compute.workers, compute.threads, place.type, compute.stacked, compute.cluster)
    except InputError as error:
        raise InputError(f"{name}.{error}") from None


def check_privacy(name: str, experiment: Experiment) -> None:
    """Check that private training is possible with these models and types; see `privacy.check_possible`."""
    if experiment.training.privacy is None:
        return
    from ktpfl_pipeline import models
    from ktpfl_pipeline.core import privacy

    image, compute = experiment.image, experiment.compute
    build = partial(models.build, channels=image.channels, size=image.size, classes=10)
    try:
        privacy.check_possible(experiment.architectures, build, compute.dtype, compute.memory_format)
    except InputError as error:
        raise InputError(f"{name}.{error}") from None


def check_methods(name: str, experiment: Experiment, methods: Iterable[str]) -> None:
    """Check for settings that a selected method does not support; see the three functions that follow.

    Args:
        name: of the experiment.
        experiment: its settings.
        methods: those that are run.
    """
    check_one_architecture(name, experiment, methods)
    check_adversaries(name, experiment, methods)
    check_private_methods(name, experiment, methods)


def check_one_architecture(name: str, experiment: Experiment, methods: Iterable[str]) -> None:
    """Check for one architecture beside methods whose clients need the same one; arguments as of `check_methods`."""
    from ktpfl_pipeline.methods import find

    given = list(dict.fromkeys(experiment.architectures))
    alike = [method for method in methods if find(method).kind.one_architecture]
    if len(given) > 1 and alike:
        raise InputError(
            f"{name}.architectures is {', '.join(given)}; {', '.join(alike)} combine{'s' * (len(alike) == 1)} the "
            f"clients' models, which needs one architecture: name one, as in [{given[0]}], or run other methods."
        )


def check_adversaries(name: str, experiment: Experiment, methods: Iterable[str]) -> None:
    """Refuse adversaries beside methods that exchange more than predictions, of which these adversaries send the truth.

    Args:
        name: of the experiment; all methods of those that begin with ``homo_`` exchange models.
        experiment: its settings.
        methods: those that are run.
    """
    from ktpfl_pipeline.methods import find

    share = experiment.adversaries.share
    if share == 0:
        return
    others = [method for method in methods if not find(method).kind.exchanges <= {"predictions"}]
    if others or name.startswith(HOMO):
        who = f"{', '.join(others)} exchange{'s' * (len(others) == 1)}" if others else "its methods exchange"
        raise InputError(
            f"{name}.adversaries.share is {share}; adversaries upload false predictions, and {who} models or "
            "prototypes, about which nobody lies: set it to 0, or run methods on predictions alone, as "
            "sweep_adversaries_digits does."
        )


def check_private_methods(name: str, experiment: Experiment, methods: Iterable[str]) -> None:
    """Refuse private training beside methods whose use of private images its ε would not cover.

    Args:
        name: of the experiment.
        experiment: its settings.
        methods: those that are run.
    """
    if experiment.training.privacy is None:
        return
    from ktpfl_pipeline.core.method import TRAINING
    from ktpfl_pipeline.methods import METHODS, find

    others = [method for method in methods if find(method).kind.private_data != TRAINING]
    if others:
        uses = f"{', '.join(others)} use{'s' * (len(others) == 1)}"
        covered = sorted(method for method in METHODS if find(method).kind.private_data == TRAINING)
        raise InputError(
            f"{name}.training.privacy is set, and {uses} private images otherwise than in plain local training, which "
            f"its ε would not cover: set it to null, or run {', '.join(covered)}."
        )
