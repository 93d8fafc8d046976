"""The server's file: how long clients are awaited, and the experiment."""

import re
from dataclasses import dataclass, field
from operator import attrgetter
from pathlib import Path
from typing import Annotated, Any, Literal

from annotated_types import Gt, MinLen

from ktpfl_flower import operations
from ktpfl_flower.alike import arithmetic
from ktpfl_flower.client import client_file
from ktpfl_flower.client.client_file import Names
from ktpfl_pipeline.config import checks, parsing
from ktpfl_pipeline.config.inheritance import deep_merge
from ktpfl_pipeline.config.schema import NO_PUBLIC, OPEN_PART, REAL, Experiment
from ktpfl_pipeline.core.errors import InputError
from ktpfl_pipeline.core.validation import Chance, Count, Reads

DEFAULTS: dict[str, Any] = {
    "private": {"source": REAL},
    "partition": {"scheme": "natural"},
    "on_divergence": "skip",
    "theorem_samples": 0,
    "evaluation": {"global_samples": 0},
}
"""Defaults of an experiment with real clients."""
THEIRS = (
    *("private", "partition", "architectures", "pretrained", "adversaries", "availability", "stragglers", "budgets"),
    *("newcomers", "theorem_samples", "evaluation.global_samples", "compute.executor"),
)
"""Settings of an experiment that only clients can decide; the server's file may not change them."""
ONLY = {"exchange": "predictions", "hyperparameters": "configured", "knowledge.noise": 0.0}
"""The values that some settings must have with real clients."""
ENCODED = {"knowledge.cache": 0, "knowledge.select": 1.0}
"""The values that some settings must have with real clients and an encoding."""


def _word(value: Any) -> Any:
    if isinstance(value, str) and not re.fullmatch(r"\w{1,80}", value):
        raise ValueError("1 to 80 letters, digits and underscores")
    return value


@dataclass(frozen=True)
class FederationFile:
    """The settings of the server's file.

    Attributes:
        name: the name of the results, the report and the runs in MLflow.
        project: the folder with ``data/``, ``mlflow.db`` and ``conf/``, relative to the file's folder.
        methods: the methods to run, one after another with the same clients.
        class_names: names of the classes in the order of the labels, which the clients' lists must fit. Empty: the
            list that most clients have.
        patience: seconds of wall time in which all clients must have joined before the first round.
        deadline: seconds of wall time in which a client must reply in each phase of a round; a slower client skips the
            round. Set more than the slowest client needs when its machine is busy.
        quorum: the smallest share of a cohort with which a round counts; with fewer clients, the round is repeated.
        tries: the number of attempts per round before the run ends.
        on_unsound: ``skip``: a client that refuses or sends an invalid reply skips the round; ``stop``: the run ends.
        experiment: settings as in a section of ``conf/``.
    """

    experiment: dict[str, Any]
    name: Annotated[str, Reads(_word)] = "real_clients"
    project: str = "."
    methods: Annotated[list[str], MinLen(1)] = field(default_factory=lambda: ["kt_pfl", "local"])
    class_names: Names = field(default_factory=list)
    patience: Annotated[float, Gt(0)] = 600
    deadline: Annotated[float, Gt(0)] = 600
    quorum: Chance = 0.6
    tries: Count = 3
    on_unsound: Literal["skip", "stop"] = "skip"


@dataclass(frozen=True)
class Plan:
    """The settings and paths of a server's file.

    Attributes:
        file: the settings.
        experiment: the experiment.
        clients: the number of clients.
        folder: the file's folder, where relative paths of data start.
        project: the folder of the results.
    """

    file: FederationFile
    experiment: Experiment
    clients: int
    folder: Path
    project: Path


def read(path: Path) -> Plan:
    """Return the plan in a server's file.

    Raises:
        InputError: if the file cannot be read, or a setting is unknown, not allowed or not supported.
    """
    file = client_file.read(FederationFile, path)
    for method in file.methods:
        operations.exchanges(method)
    with checks.saying(f"{path}: "):
        experiment = parsed(file.experiment)
        checks.check_methods("experiment", experiment, file.methods)
    assert experiment.clients is not None
    folder = path.resolve().parent
    return Plan(file, experiment, experiment.clients, folder, (folder / file.project).resolve())


def parsed(section: dict[str, Any]) -> Experiment:
    """Return the experiment of a server's file.

    Raises:
        InputError: if a setting is unknown or not allowed, or only clients can decide it.
    """
    if "compare" in section:
        raise InputError("experiment.compare is set; list the methods under methods, at the top level of the file.")
    if not section.get("clients"):
        raise InputError("experiment.clients is missing; set it to the number of clients, for example clients: 2.")
    experiment = parsing.parse("experiment", deep_merge(DEFAULTS, section))
    plain = parsing.form("experiment", DEFAULTS)
    for setting in THEIRS:
        if attrgetter(setting)(experiment) != attrgetter(setting)(plain):
            raise InputError(f"experiment.{setting} is set, but only the clients can decide it. Remove it.")
    arithmetic(experiment.compute)
    encodes = experiment.knowledge.encoding != "float32"
    for only, where in ((ONLY, "with real clients"), (ENCODED if encodes else {}, "with real clients and an encoding")):
        for setting, allowed in only.items():
            if (value := attrgetter(setting)(experiment)) != allowed:
                raise InputError(f"experiment.{setting} is {value}; {where} it must be {allowed}.")
    if experiment.knowledge.encoding == "sign":
        raise InputError(
            "experiment.knowledge.encoding is sign, whose error feedback real clients do not keep. Choose float32, "
            "float16, uint8 or top_k."
        )
    if experiment.public.source in (OPEN_PART, NO_PUBLIC, "included"):
        raise InputError(
            f"experiment.public.source is {experiment.public.source}, but the server has no private samples to take "
            "public ones from. Set a source with samples of its own, for example public: {source: npz:public.npz}."
        )
    return experiment
