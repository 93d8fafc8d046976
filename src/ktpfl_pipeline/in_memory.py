"""Federated learning from Python, without a Kedro project: for notebooks and first experiments.

`federation` creates clients with data and models, `run` trains one method on them, and `compare` trains several methods
and returns a report. These functions do not read conf/ and do not track runs. They use the same code as the Kedro
pipelines, so equal settings give equal results. Settings are checked before torch is imported, which takes seconds.

Example:
    >>> fed = federation("digits", clients=10, partition="two_labels")
    >>> print(compare(["kt_pfl", "fedmd", "local"], fed, rounds=5))
"""

import html
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from ktpfl_pipeline import tracking
from ktpfl_pipeline.analysis import comparison as compared
from ktpfl_pipeline.analysis.provenance import here_and_now
from ktpfl_pipeline.analysis.results import MethodResult, summarize
from ktpfl_pipeline.config import checks, parsing
from ktpfl_pipeline.config.inheritance import deep_merge
from ktpfl_pipeline.config.schema import Evaluation, Experiment
from ktpfl_pipeline.core.architectures import Architectures
from ktpfl_pipeline.core.errors import InputError, listed, unknown
from ktpfl_pipeline.core.identity import differences
from ktpfl_pipeline.core.machine.files import replacing
from ktpfl_pipeline.core.validation import Count, Fraction, Rule, Seed, parse, value_of
from ktpfl_pipeline.core.warnings import spelled
from ktpfl_pipeline.methods import METHODS, create, title
from ktpfl_pipeline.models import for_texts
from ktpfl_pipeline.reports.style import PAGE
from ktpfl_pipeline.runs.progress import expect

if TYPE_CHECKING:
    import pandas as pd
    from torch.utils.data import Dataset

    from ktpfl_pipeline.core.dataset import LabeledDataset
    from ktpfl_pipeline.core.federation import Federation
    from ktpfl_pipeline.core.method import Method
    from ktpfl_pipeline.reports.report import Report

Data: TypeAlias = "str | Mapping[str, Any] | Sequence[Any] | LabeledDataset | Dataset[Any]"

SETTINGS: dict[str, dict[str, Any]] = {
    "private": {},
    "public": {"source": "open_part", "batch": 150},
    "image": {"channels": 1, "size": 28},
    "text": {},
    "training": {"epochs": 3, "batch_size": 16, "learning_rate": 0.05},
    "distillation": {"epochs": 2, "batch_size": 64, "learning_rate": 0.05},
    "adversaries": {},
    "knowledge": {},
    "pretrained": {},
    "compute": {},
}
"""The groups of settings that `federation` accepts, with their defaults, for which a run on digits takes seconds."""


def federation(
    data: Data,
    clients: int | None = 10,
    architectures: str | Architectures = ("lenet", "cnn", "cnn_bn", "mlp"),
    partition: str | dict[str, Any] = "dirichlet",
    seed: int = 0,
    folder: str | Path = ".",
    **settings: dict[str, Any],
) -> "Federation":
    """Load a dataset, partition it among clients, and return the federation.

    Args:
        data: the private samples. A source, as for the setting ``private.source``: ``"digits"`` or ``"npz:mine.npz"``.
            Or inputs and labels, two arrays or tensors: images in uint8, features in floats, or, for `architectures` of
            texts, token ids in integers. Or a mapping with the arrays of an ``.npz`` file:
            ``{"images": …, "labels": …, "clients": …}``. Or a `LabeledDataset`, or a dataset of torch with pairs of an
            input and a label.
            Images of tensors are (N, C, H, W), images of arrays (N, H, W, C), and both may be (N, H, W).
        clients: the number of clients, N. With None, the federation has all clients of the data; the partition must
            then be ``"natural"``.
        architectures: one name; a list of names, which are assigned to the clients in turn; or a mapping from names to
            numbers of clients, such as ``{"lenet": 6, "mlp": 4}``.
        partition: the name of a partition scheme, or a mapping with the scheme and its parameters, such as
            ``{"scheme": "dirichlet", "alpha": 0.3}``.
        seed: the seed of the partition, the initial models and all other random draws.
        folder: the folder that relative paths start from, and that downloads are stored in.
        settings: groups of `SETTINGS` with the values to change, such as ``training={"epochs": 5}``. Settings that are
            not given keep the defaults of `SETTINGS`, or else those of `Experiment`.

    Raises:
        InputError: if a setting is unknown or has an invalid value, if settings exclude each other or do not fit the
            samples, or if the samples cannot be loaded.
    """
    for group in settings:
        if group not in SETTINGS:
            raise unknown("setting of a federation", group, SETTINGS)
    seed = value_of(Rule.of(Seed), seed, "federation.seed")
    given = {
        **SETTINGS,
        "private": {"source": data if isinstance(data, str) else "npz"},
        "clients": clients,
        "architectures": list(architectures) if isinstance(architectures, tuple) else architectures,
        "partition": {"scheme": partition} if isinstance(partition, str) else partition,
        "seeds": [seed],
        "methods": {},
    }
    if not isinstance(data, str) and "image" not in settings:
        given["image"] = None  # given inputs keep their form
    section = parsing.merged({"federation": given}, {"federation": settings})["federation"]
    parsing.spelled("federation", section)
    if "source" in settings.get("private", {}):
        raise InputError(
            "federation.private.source is set, and so is data, which names the samples: leave private.source out."
        )
    from ktpfl_pipeline.data.given import check_meant, stored
    from ktpfl_pipeline.runs.assembly import assemble
    from ktpfl_pipeline.runs.given import PYTHON, Origin
    from ktpfl_pipeline.runs.preparation import prepare

    with tempfile.TemporaryDirectory() as place:
        source = data if isinstance(data, str) else stored(data, Path(place))

        def shown(text: str) -> str:
            """Return a text without the name of the file that the given samples were stored in."""
            if source == data:
                return text
            return text.replace(source, PYTHON).replace(source.removeprefix("npz:"), "the given data")

        given = deep_merge(section, {"private": {"source": source}})
        try:
            experiment = parsing.parse("federation", given, together=False)
            checks.check_together("federation", experiment)  # not with KT-pFL, which may not be run
            if source != data and not all(map(for_texts, experiment.models())):
                check_meant(data, source)
            with spelled(shown):
                made = prepare(experiment, Path(folder))
        except InputError as error:
            if source == data:
                raise
            raise InputError(shown(str(error))) from error
    if source != data:
        experiment = replace(experiment, private=replace(experiment.private, source=PYTHON))
    return replace(assemble(experiment, made, seed), origin=Origin(experiment, made))


FEW = {"adapt_epochs": [0], "global_samples": 0}
"""The evaluation of `run` where none is given: accuracy by round only."""


def run(
    method: "str | Method[Any]",
    *federations: "Federation",
    rounds: int = 5,
    participation: float = 1.0,
    evaluation: Mapping[str, Any] | None = None,
    checkpoints: str | Path | None = None,
    progress: bool = True,
) -> MethodResult:
    """Train a method on each federation, and return its result, which the functions of `reports.figures` can plot.

    Args:
        method: the method's name in the registry, its dotted path, or a `Method` object.
        federations: one federation, or several that differ only in the seed. With several, the result has one run per
            seed and the standard deviation over seeds. A federation may also be a `Federation` made by hand.
        rounds: the number of communication rounds.
        participation: the share of clients that are sampled in each round.
        evaluation: settings of `config.schema.Evaluation`, such as ``{"adapt_epochs": [0, "E"]}``. With None, models
            are evaluated after each round, without adaptation.
        checkpoints: a folder for checkpoints: an interrupted call continues if it is repeated. None stores nothing.
        progress: whether a terminal shows the progress. In a notebook, the log has a line per run at the level INFO.

    Raises:
        InputError: if an argument has a wrong type or value, if two federations have the same seed or differ in other
            settings, if the method cannot run on a federation, or if training diverges.
    """
    expect(1, progress)
    return _result(method, federations, rounds, participation, evaluation, checkpoints)


def _result(
    method: "str | Method[Any]",
    federations: "tuple[Federation, ...]",
    rounds: int,
    participation: float,
    evaluation: Mapping[str, Any] | None,
    checkpoints: str | Path | None,
) -> MethodResult:
    """Return the result of `run`."""
    from ktpfl_pipeline.runs.given import GivenJob, experiment_of
    from ktpfl_pipeline.runs.run import run_all

    made = create(method) if isinstance(method, str) else method
    _check_arguments(made, federations)
    asked = {
        "rounds": value_of(Rule.of(Count), rounds, "rounds"),
        "participation": value_of(Rule.of(Fraction), participation, "participation"),
        "evaluation": parse(Evaluation, FEW if evaluation is None else evaluation, "evaluation"),
        "theorem_samples": 0 if evaluation is None else Experiment.theorem_samples,
        "seeds": [fed.seed for fed in federations],
    }
    experiment = experiment_of(federations[0], **asked)
    by_seed, name = {fed.seed: fed for fed in federations}, _name_of(method)
    job = GivenJob("in memory", name, experiment, cast("Any", None), federations=by_seed, made=made)
    with tracking.without_store(None if checkpoints is None else Path(checkpoints)):
        return summarize(run_all(job, title(name)), asdict(made), experiment.settings() | experiment.reported())


@dataclass(frozen=True, eq=False)
class Comparison:
    """The results and the report of several methods on the same federations. A notebook displays the report.

    Attributes:
        results: one result per method, in the order of the methods given to `compare`. The functions of
            `reports.figures` can plot them.
        report: the report, in the same form as a report of the Kedro pipelines.
    """

    results: list[MethodResult]
    report: "Report"

    def write(self, folder: str | Path, *kinds: str) -> Path:
        """Write the report's files into a new folder, and return the path of its HTML page.

        Args:
            folder: the folder, which is created.
            kinds: file formats of the figures in addition to SVG: ``png``, ``pdf``.

        Raises:
            InputError: if a file format is unknown, or if the folder already exists.
        """
        place = Path(folder)
        if place.exists():
            raise InputError(f"{place} already exists, and a report is written into a new folder: name another one.")
        with replacing(place) as partial:
            self.report.write(partial, kinds)
        return place / PAGE

    def __str__(self) -> str:
        """Return the summary and the table of the terminal."""
        return self.report.console

    def table(self) -> "pd.DataFrame":
        """Return the main table: one row per method, accuracies and differences as fractions of 1, without spreads."""
        import pandas as pd

        from ktpfl_pipeline.reports.model import Table
        from ktpfl_pipeline.reports.numbers import Number

        shown = next(block for block in self.report.brief if isinstance(block, Table))
        rows = [[each.value if isinstance(each, Number) else each for each in row] for row in shown.entries]
        return pd.DataFrame(rows, columns=[each.title for each in shown.columns])

    def to_pandas(self, name: str = "runs") -> "pd.DataFrame":
        """Return a CSV file of the report as a DataFrame, such as ``runs``, ``rounds``, ``clients`` or ``differences``.

        Raises:
            InputError: if the report has no such file.
        """
        frames: dict[str, pd.DataFrame] = compared.Comparison(self.results).frames
        if name not in frames:
            raise unknown("file of the report", name, frames)
        return frames[name]

    def _repr_html_(self) -> str:
        """Return the page in an iframe, so that its style sheet does not affect the notebook."""
        return f'<iframe srcdoc="{html.escape(self.report.html)}" width="100%" height="700"></iframe>'


def compare(
    methods: "Iterable[str | Method[Any]]",
    *federations: "Federation",
    rounds: int = 5,
    name: str = "comparison",
    participation: float = 1.0,
    evaluation: Mapping[str, Any] | None = None,
    checkpoints: str | Path | None = None,
    progress: bool = True,
) -> Comparison:
    """Train several methods on the same federations, and return their results with a report.

    Args:
        methods: a list of methods, each as for `run`. Include ``"local"``: the report compares the other methods with
            local-only training.
        federations: one federation, or several that differ only in the seed; see `run`. With at least three seeds, the
            report has confidence intervals.
        rounds: the number of communication rounds.
        name: the name of the comparison, which the report shows.
        participation: as for `run`.
        evaluation: as for `run`. An empty mapping gives the evaluation of the pipelines, with adaptation.
        checkpoints: as for `run`.
        progress: as for `run`.

    Raises:
        InputError: for the reasons given for `run`, if two methods have the same title, or if `methods` is empty or a
            single string.
    """
    if isinstance(methods, str):
        raise InputError(f"methods is {methods!r}; give a list, [{methods!r}, 'local'].")
    methods = list(methods)
    titles = [title(_name_of(method)) for method in methods]
    if twice := [each for place, each in enumerate(titles) if each in titles[:place]]:
        raise InputError(
            f"Two methods are called {twice[0]!r}, and a report could not tell them apart: derive a class from that of "
            "one of them, with a title of its own."
        )
    if not titles:
        raise InputError("methods is empty. List at least one method, for example ['kt_pfl', 'local'].")
    for method in methods:
        _check_arguments(create(method) if isinstance(method, str) else method, federations)
    value_of(Rule.of(Count), rounds, "rounds")
    from ktpfl_pipeline.reports.comparison import build

    expect(len(methods), progress)
    asked = rounds, participation, evaluation, checkpoints
    results = [_result(method, federations, *asked) for method in methods]
    return Comparison(results, build(name, compared.Comparison(results), here_and_now()))


def _name_of(method: Any) -> str:
    """Return a method's name in the registry, or the title of a method that is not in the registry."""
    if isinstance(method, str):
        return method
    named = [name for name, preset in METHODS.items() if preset.kind is type(method)]
    equal = [name for name in named if create(name) == method]  # one class may have several presets
    return next(iter([*equal, *named]), str(getattr(method, "title", method)))


def _check_arguments(method: Any, federations: tuple[Any, ...]) -> None:
    from ktpfl_pipeline.core.federation import Federation
    from ktpfl_pipeline.core.method import Method
    from ktpfl_pipeline.runs.given import experiment_of

    if isinstance(method, type):
        raise InputError(f"The method is the class {method.__name__}; give an object of it, {method.__name__}().")
    if not isinstance(method, Method):
        raise InputError(f"The method is {method!r}; give a name, such as 'kt_pfl', or an object, such as KTpFL().")
    method.check_class(type(method).__name__)
    if not federations:
        raise InputError("There is no federation to run the method on: give one, run('kt_pfl', federation('digits')).")
    if others := [each for each in federations if not isinstance(each, Federation)]:
        if isinstance(others[0], list | tuple):
            raise InputError("The federations are in a list; give each by itself, as in run('local', *federations).")
        hint = f", and the number of rounds by its name, rounds={others[0]}" if isinstance(others[0], int) else ""
        raise InputError(f"A federation is {others[0]!r}; give what federation(...) returns{hint}.")
    seeds = [fed.seed for fed in federations]
    if len(set(seeds)) < len(seeds):
        raise InputError(f"The federations have the seeds {seeds}; give each another one, federation(..., seed=1).")
    if len(sizes := {len(fed.clients) for fed in federations}) > 1:
        raise InputError(
            f"The federations have different numbers of clients ({listed(sorted(sizes))}): give "
            "federations that differ only in the seed."
        )
    known = [experiment_of(fed, seeds=[0]).settings() for fed in federations]
    for settings in known[1:]:
        if changes := differences(known[0], settings):
            raise InputError(
                f"The federations have other settings ({changes}), and their mean would be of neither: give "
                "federations that differ only in the seed."
            )
