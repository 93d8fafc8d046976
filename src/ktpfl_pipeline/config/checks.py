"""What does not fit together in settings whose form is right: names, devices, privacy, adversaries.

Each function returns nothing, or raises an `InputError` that names the value, what is allowed and how to fix it.
`parsing` calls them; `check_methods` needs to know which methods are run.

Arguments that they share:
    where: the path to a setting, for the message.
    name: the experiment's.
    experiment: its settings.
    methods: those that are run.
"""

import contextlib
import difflib
import re
from collections.abc import Callable, Collection, Iterable, Iterator
from functools import partial
from typing import Any

from ktpfl_pipeline.config.schema import ALL, BUT, NO_PUBLIC, OPEN_PART, REAL, RUN_BY_FLOWER, Experiment, Knowledge
from ktpfl_pipeline.config.studies import PAPER
from ktpfl_pipeline.core.architectures import dealt
from ktpfl_pipeline.core.errors import InputError
from ktpfl_pipeline.methods import METHODS, dotted, find, title


@contextlib.contextmanager
def saying(where: str) -> Iterator[None]:
    """Let the message of an `InputError` from within begin with where it comes from."""
    try:
        yield
    except InputError as error:
        raise InputError(f"{where}{error}") from error


ALWAYS = ("kt_pfl", "kt_pfl_params", "local")
"""Methods that no comparison leaves out: KT-pFL in the form that fits, and local-only training."""


def nearest(given: str, known: Iterable[str], otherwise: str) -> str:
    """Return how a message goes on after a name that does not exist: with the nearest known one, or `otherwise`."""
    near = difflib.get_close_matches(given, list(known), n=1)
    return f"did you mean {near[0]!r}?" if near else otherwise


def check_known(where: str, given: str, known: Collection[str]) -> None:
    """Check that a name is one of those known; the message suggests the nearest."""
    if given not in known:
        hint = nearest(given, known, f"choose from {', '.join(known)}.")
        raise InputError(f"{where} is {given!r}, which does not exist; {hint}")


def check_extension(where: str, given: str, known: Collection[str], find: Callable[[str], Any]) -> None:
    """Check that a name is in the registry `known`, or is a dotted path that leads to something of use.

    Args:
        where: as above.
        given: the name or path.
        known: the names of the registry.
        find: imports what a dotted path names.
    """
    if given not in known and (meant := dotted(given)):
        raise InputError(f"{where} is {given!r}, which is no dotted path, package.module:name; write {meant}.")
    if ":" not in given:
        return check_known(where, given, known)
    with saying(f"{where}: "):
        find(given)


def check_names(name: str, experiment: Experiment) -> None:
    """Check that what is named exists: architectures of ours, methods, schemes, sources, devices."""
    from ktpfl_pipeline import models
    from ktpfl_pipeline.data import sources
    from ktpfl_pipeline.data.partition import NATURAL, SCHEMES

    check_known(f"{name}.partition.scheme", experiment.partition.scheme, [*SCHEMES, NATURAL])
    for architecture in experiment.models():
        if not models.is_family(architecture):
            check_extension(f"{name}.architectures", architecture, models.MODELS, models.find)
    check_compare(name, experiment)
    called: dict[str, str] = {}
    if experiment.subject is not None:
        check_extension(f"{name}.subject", experiment.subject, list(METHODS), find)
    everything = [*METHODS] * (ALL in experiment.compare)
    for method in (each for each in (*everything, *experiment.named) if each not in experiment.left_out):
        if (other := called.setdefault(title(method), method)) != method:
            raise InputError(
                f"{name}.compare has {other} and {method}, and both are called {title(method)!r}: rename one."
            )
    for kind, known in (
        ("private", [*sources.SOURCES]),
        ("public", [*sources.SOURCES, OPEN_PART, NO_PUBLIC, "included"]),
    ):
        source = getattr(experiment, kind).source
        if (kind, source) == ("private", REAL):  # refused where a command would run it: see `check_here`
            continue
        given = source if sources.PATH.fullmatch(source) else source.partition(":")[0]
        check_extension(f"{name}.{kind}.source", given, known, sources.find)
    check_device(f"{name}.compute.device", experiment.compute.device)


def check_federation(name: str, experiment: Experiment) -> None:
    """Check that clients, partition, architectures and workers go together."""
    from ktpfl_pipeline.core import executors, setting
    from ktpfl_pipeline.data.partition import NATURAL

    if experiment.clients is None and experiment.partition.scheme != NATURAL:
        raise InputError(
            f"{name}.clients is null, which means all clients of the source, and {name}.partition.scheme is"
            f" {experiment.partition.scheme!r}, which deals the samples out: give a number, or the scheme {NATURAL}."
        )
    private = experiment.private
    if private.samples is not None and private.samples_per_client is not None:
        raise InputError(
            f"{name}.private.samples is {private.samples} and {name}.private.samples_per_client is"
            f" {private.samples_per_client}; each decides how many private samples there are: set one of them to null."
        )
    if private.samples_per_client is not None and experiment.clients is None:
        raise InputError(
            f"{name}.private.samples_per_client is {private.samples_per_client} and {name}.clients is null, all clients"
            " of the source: give a number of clients, or private.samples."
        )
    for architecture in experiment.pretrained:
        check_known(f"An architecture of {name}.pretrained", architecture, experiment.models())
    if experiment.clients is not None:
        with saying(f"{name}."):
            dealt(experiment.architectures, range(experiment.clients))
    compute = experiment.compute
    with saying(f"{name}."):
        dtype: Any = "float32" if compute.dtype.startswith("auto") else compute.dtype
        device = setting.Compute(compute.device, dtype).place()
        executors.create(compute.workers, compute.threads, device, compute.cluster)


def check_families(name: str, experiment: Experiment) -> None:
    """Check that models of other libraries exist: only where they are run, as the libraries take seconds to import."""
    from ktpfl_pipeline import models

    for architecture in filter(models.is_family, experiment.models()):
        with saying(f"{name}.architectures: "):
            models.find(architecture)


def check_device(where: str, device: str) -> None:
    """Check that a device exists on this machine."""
    import torch

    if not re.fullmatch(r"auto|cpu|cuda(:\d+)?", device):
        raise InputError(f"{where} is {device!r}; choose auto, cpu, cuda or cuda:<number>.")
    kind, _, number = device.partition(":")
    if kind == "cuda" and int(number or 0) >= (found := torch.cuda.device_count()):
        raise InputError(f"{where} is {device!r} and torch finds {found or 'no'} GPUs here; choose auto or cpu.")


def check_privacy(name: str, experiment: Experiment) -> None:
    """Check that private training is possible with these models and types; see `privacy.check_possible`."""
    if experiment.training.privacy is None:
        return
    from ktpfl_pipeline import models
    from ktpfl_pipeline.core.training import privacy

    image, compute = experiment.image, experiment.compute
    if image is None:
        return  # the shape is not known before the data are; `Setting` checks it then
    build = partial(models.build, shape=image.shape, classes=10)
    with saying(f"{name}."):
        privacy.check_possible(experiment.models(), build, compute.dtype, compute.memory_format)


def check_compare(name: str, experiment: Experiment) -> None:
    """Check what a comparison names and what it leaves out."""
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


def check_methods(name: str, experiment: Experiment, methods: Iterable[str]) -> None:
    """Check that every method supports the settings; without any, what all methods of the experiment must."""
    check_one_architecture(name, experiment, methods)
    check_adversaries(name, experiment, methods)
    check_private_methods(name, experiment, methods)
    check_steps(name, experiment, methods)
    check_knowledge(name, experiment, methods)
    check_public(name, experiment, methods)


def check_one_architecture(name: str, experiment: Experiment, methods: Iterable[str]) -> None:
    """Check for one architecture beside methods that combine the clients' models."""
    given = experiment.models()
    alike = [method for method in methods if find(method).kind.one_architecture]
    if len(given) > 1 and (alike or experiment.exchange == "parameters"):
        who = f"{', '.join(alike)} combine{'s' * (len(alike) == 1)}" if alike else "its methods combine"
        instead = "run other methods" if alike else f"put {name}.exchange to predictions"
        raise InputError(
            f"{name}.architectures is {', '.join(given)}; {who} the clients' models, which needs one architecture: "
            f"name one, as in [{given[0]}], or {instead}."
        )


def check_adversaries(name: str, experiment: Experiment, methods: Iterable[str]) -> None:
    """Check for no adversaries beside methods that exchange more than predictions, of which they send the truth."""
    share = experiment.adversaries.share
    if share == 0:
        return
    others = [method for method in methods if not find(method).kind.exchanges <= {"predictions"}]
    if others or experiment.exchange == "parameters":
        who = f"{', '.join(others)} exchange{'s' * (len(others) == 1)}" if others else "its methods exchange"
        raise InputError(
            f"{name}.adversaries.share is {share}; adversaries upload false predictions, and {who} models or "
            "prototypes, about which nobody lies: set it to 0, or run methods on predictions alone, as "
            "sweep_adversaries_digits does."
        )


def check_private_methods(name: str, experiment: Experiment, methods: Iterable[str]) -> None:
    """Check for no private training beside methods whose use of private samples its ε would not cover."""
    if experiment.training.privacy is None:
        return
    from ktpfl_pipeline.core.method import TRAINING

    others = [method for method in methods if find(method).kind.private_data != TRAINING]
    if others:
        uses = f"{', '.join(others)} use{'s' * (len(others) == 1)}"
        covered = sorted(method for method in METHODS if find(method).kind.private_data == TRAINING)
        raise InputError(
            f"{name}.training.privacy is set, and {uses} private samples otherwise than in plain local training, which "
            f"its ε would not cover: set it to null, or run {', '.join(covered)}."
        )


def check_configured(name: str, experiment: Experiment, study: str) -> None:
    """Check for configured hyperparameters in a `study`, a sweep's or the paper's section: tuned ones are not read."""
    if experiment.hyperparameters == "tuned":
        kind = "the paper" if study == PAPER else "a sweep"
        raise InputError(
            f"{name}.hyperparameters is tuned, and {kind} runs configured ones; put it to configured for {study}."
        )


def check_here(name: str, experiment: Experiment) -> None:
    """Check that the experiment's clients are in this process: real clients have a command of their own."""
    if experiment.private.source == REAL:
        raise InputError(f"{name}.private.source is {REAL}. {RUN_BY_FLOWER}")


def check_newcomers(name: str, experiment: Experiment) -> None:
    """Check that clients can be held out, and that what they are judged by goes with the other settings."""
    share = experiment.newcomers
    if share == 0:
        return
    from ktpfl_pipeline.core.rounds.newcomers import held_out

    if experiment.clients is not None:
        with saying(f"{name}."):
            held_out(range(experiment.clients), share, 0)
    beside = [
        ("adversaries.share", 0, experiment.adversaries.share > 0, "are judged among honest clients"),
        ("training.privacy", "null", experiment.training.privacy is not None, "are judged after plain local training"),
    ]
    for setting, none, given, why in beside:
        if given:
            raise InputError(
                f"{name}.newcomers is {share:g} beside {name}.{setting}, and newcomers {why}: put {name}.{setting} to "
                f"{none}, or {name}.newcomers to 0."
            )


def check_recipes(name: str, experiment: Experiment) -> None:
    """Check that the settings of each recipe go together, and that images can be changed so."""
    from ktpfl_pipeline.config import recipes
    from ktpfl_pipeline.core.training import augmentation

    with saying(f"{name}.training."):
        training = recipes.local_training(experiment.training)
    with saying(f"{name}.distillation."):
        recipes.distillation(experiment.distillation)
    if experiment.image is not None:  # else `Setting` checks it when the data are known
        with saying(f"{name}."):
            augmentation.check_channels(training.augmentation, experiment.image.channels)


def check_steps(name: str, experiment: Experiment, methods: Iterable[str]) -> None:
    """Check for plain steps beside methods that prescribe their own."""
    from ktpfl_pipeline.config import recipes

    changes = [*recipes.local_training(experiment.training).beyond_plain()]
    own = [method for method in methods if find(method).kind.own_step]
    if changes and own:
        raise InputError(
            f"{name}.training.{changes[0]}, and {', '.join(own)} prescribe{'s' * (len(own) == 1)} how a step goes, "
            "which that would change: leave it out, or run other methods."
        )


def check_public(name: str, experiment: Experiment, methods: Iterable[str]) -> None:
    """Check for public samples where a method exchanges predictions of them."""
    if experiment.public.source != NO_PUBLIC:
        return
    asking = [method for method in methods if "predictions" in find(method).kind.exchanges]
    if asking or experiment.exchange == "predictions":
        who = f"{', '.join(asking)} exchange{'s' * (len(asking) == 1)}" if asking else "its methods exchange"
        raise InputError(
            f"{name}.public.source is {NO_PUBLIC}, and {who} predictions of public samples: choose another source,"
            f" such as {OPEN_PART}, or run methods that exchange parameters."
        )


def check_knowledge(name: str, experiment: Experiment, methods: Iterable[str]) -> None:
    """Check that predictions travel at all where it is said how, and beside methods that prescribe a part of it."""
    given = {key: value for key, value in experiment.knowledge if value != Knowledge.model_fields[key].default}
    if given and experiment.exchange == "parameters":
        raise InputError(
            f"{name}.knowledge.{next(iter(given))} says how predictions travel, and {name}.exchange is parameters, of "
            "methods that send none: leave it out, or put exchange to predictions."
        )
    for method in methods:
        if own := find(method).kind.own_knowledge.intersection(given):
            setting = min(own)
            raise InputError(
                f"{name}.knowledge.{setting} is {given[setting]}, and {method} has a rule of its own for that: leave "
                "it out, or run other methods."
            )
