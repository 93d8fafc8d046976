"""The overview of all finished comparisons: tables like the paper's, differences, curves and traffic.

The overview reads only the ``comparison.json`` of each report. A column is one comparison, whose settings are listed.
Comparisons with one architecture, as in Table 2 of the paper, have separate tables. Except for local-only training,
they have other methods than comparisons with several architectures.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ktpfl_pipeline.analysis.comparison import Comparison
from ktpfl_pipeline.analysis.ranking import ERROR, FEWEST, common, ranking
from ktpfl_pipeline.analysis.statistics import FEWEST_SEEDS, Difference
from ktpfl_pipeline.analysis.study import circumstances
from ktpfl_pipeline.core.errors import InputError, plural
from ktpfl_pipeline.core.identity import flat
from ktpfl_pipeline.core.metrics import AFTER_TRANSFER
from ktpfl_pipeline.methods import METHODS, title
from ktpfl_pipeline.reports import figures, paper, words
from ktpfl_pipeline.reports.model import Block, Column, Links, Notes, Picture, Section, Settings, Table, Text
from ktpfl_pipeline.reports.numbers import MB, Entry
from ktpfl_pipeline.reports.report import Report
from ktpfl_pipeline.reports.style import PAGE, REMAKE, RESULTS
from ktpfl_pipeline.reports.tables import (
    MINUS_LOCAL,
    PAPER,
    TITLE,
    VARIANT,
    accuracy_at,
    gained,
    methods_table,
    runs,
    variant_columns,
)
from ktpfl_pipeline.reports.words import as_text, gaining, marked, plain, signs

ONE = ", one architecture"
"""The end of headings and titles of comparisons with one architecture."""

# The pairs whose differences follow the differences to local-only: KT-pFL and its simplest baseline.
_PAIRS = (("kt_pfl", "sim_pfl"), ("kt_pfl_params", "fedavg"))

ACCURACY = (
    "Mean test accuracy over the clients and seeds by round. Thick, with the range over seeds: the subject of each "
    "comparison's report, KT-pFL where no other is set, and local-only."
)
DIFFERENCES = (
    f"{words.CORRECTED} KT-pFL minus its simplest baseline is tested together with KT-pFL minus its other baselines."
)
TRAFFIC = (
    f"Final accuracy against what all clients sent and received over the whole run, {MB}, means over seeds. "
    f"{words.FRONTIER} Scales differ."
)


Columns = Mapping[str, Comparison]
"""Comparisons by title. The `value` of a comparison is the folder of its report below all reports."""
COMPARISON = Column("comparison", "Comparison", value=str)


def differences(comparison: Comparison) -> dict[tuple[str, str], Difference | None]:
    """Return each method minus local-only, and KT-pFL minus its simplest baseline, corrected as in the report."""
    found = {(method, "local"): one for method, one in comparison.gains().items()}
    for main, baseline in _PAIRS:
        if {main, baseline} <= comparison.methods.keys():
            found[main, baseline] = comparison.leads(AFTER_TRANSFER, main)[baseline]
    return found


def build(contents: Mapping[str, Mapping[str, Any]]) -> Report:
    """Return the report on all finished comparisons, from the contents of their ``comparison.json`` by folder.

    The contents are in the order in which they were written. Of several reports of one pipeline on the same data and
    circumstances, the last is shown, and the section with the reports links to the others too. Raises InputError if no
    comparison has two methods, or a content is not a comparison.
    """
    comparisons = [read(place, content) for place, content in contents.items()]
    compared = [each for each in comparisons if len(each.methods) > 1]
    newest = {(each.value.partition("/")[0], circumstances(each.settings)): each for each in compared}
    columns = titled([*newest.values()])
    earlier = {each.value: f"../{each.value}/{PAGE}" for each in compared if each not in newest.values()}
    if not columns:
        example = "`kedro run --pipelines=compare_hetero_digits`"
        raise InputError(f"There is no finished comparison to show; run one first, for example {example}.")
    results = {name: each.results for name, each in columns.items()}
    named = [(name, result) for name, each in results.items() for result in each]
    hetero, homo = (
        {name: each for name, each in columns.items() if paper.one_architecture(each.settings) == one} for one in (0, 1)
    )
    sections = [
        Section("Accuracy", [accuracy_table(hetero)]),
        Section(f"Accuracy{ONE}", [accuracy_table(homo, "accuracy-one-architecture")]),
        Section("How to read the tables", [Notes(notes(columns))]),
        Section("Differences", [difference_table(hetero)]),
        Section(f"Differences{ONE}", [difference_table(homo, "differences-one-architecture")]),
        Section("Ranks over comparisons", ranks(hetero)),
        Section(f"Ranks over comparisons{ONE}", ranks(homo, "ranks-one-architecture")),
        Section("Accuracy by round", [Picture("accuracy", figures.accuracy_panels(results), ACCURACY)]),
        Section("Communication", [Picture("communication", figures.traffic_panels(results), TRAFFIC)]),
        Section("The paper's own numbers (other settings: not comparable)", [paper_table(columns)]),
        Section("Settings in which the comparisons differ", [settings_table(columns)]),
        Section("Settings that all comparisons have in common", [Settings({"": common_settings(columns)})]),
        Section("Reports", [Links({name: f"../{each.value}/{PAGE}" for name, each in columns.items()})]),
        Section("Earlier reports", [Links(earlier)], folded=True),
        runs(named, [VARIANT.but(title=COMPARISON.title), TITLE], [AFTER_TRANSFER]),
    ]
    return Report(
        name="overview",
        title="Overview",
        kind="Overview of comparisons",
        summary=summary(columns),
        facts=[plural(len(columns), "comparison"), plural(len(_titles(columns)), "method")],
        sections=sections,
        brief=[part for name, each in columns.items() for part in (Text(name), _brief(each))],
    )


def read(place: str, content: Mapping[str, Any]) -> Comparison:
    """Return a comparison from its ``comparison.json`` in `place`, with the methods in the registry's order."""
    try:
        results = sorted(Comparison.from_dict(content), key=lambda result: _rank(result.method, METHODS))
        found = Comparison(results, place)
        for result in results:  # the tables need these
            _ = result.final[AFTER_TRANSFER], result.curve[AFTER_TRANSFER]
        _ = titled([found]), paper.differences(found.settings)
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise InputError(
            f"{place}/{RESULTS} below the reports does not read as a comparison of this version "
            f"({type(error).__name__}: {error}): {REMAKE}"
        ) from error
    return found


def titled(comparisons: Sequence[Comparison]) -> dict[str, Comparison]:
    """Return the comparisons by the titles of their columns, in the order of the paper's tables.

    A title has the dataset, the partition, and whether there is one architecture. Equal titles are extended by the
    number of clients, then by the public set, and then by the folder of the report.
    """

    def order(each: Comparison) -> tuple[Any, ...]:
        dataset, partition = _data(each.settings)
        known = _rank(dataset, paper.DATASETS.values()), dataset, _rank(partition, ["all labels", "two labels"])
        return (paper.one_architecture(each.settings), *known, partition, each.settings["clients"] or 0, each.value)

    ordered = sorted(comparisons, key=order)
    titles = [f"{', '.join(_data(each.settings))}{ONE * paper.one_architecture(each.settings)}" for each in ordered]
    for additions in (
        [words.clients(each.settings) for each in ordered],
        [f"public {plain(str(each.settings['public']['source']))}" for each in ordered],
        [each.value for each in ordered],
    ):
        pairs = list(zip(titles, additions, strict=True))
        alike, same = Counter(titles), Counter(pairs)
        titles = [f"{old}, {addition}" if alike[old] > same[old, addition] else old for old, addition in pairs]
    return dict(zip(titles, ordered, strict=True))


def accuracy_table(columns: Columns, name: str = "accuracy") -> Table:
    """Return final accuracy in percent by method and comparison, with the paper's numbers for the paper's settings."""
    shown: list[Column] = []
    for column, each in columns.items():
        cited = {} if paper.differences(each.settings) else paper.cited(each.settings, each.methods)
        shown += variant_columns(column, each, cited)
    latex = f"Accuracy: {words.OWN_MODEL} {words.averaged(None)} Bold: {words.BOLD}"
    return methods_table(name, _titles(columns), shown, latex)


def difference_table(columns: Columns, name: str = "differences") -> Table:
    """Return differences to local-only by method and comparison, and KT-pFL's difference to its simplest baseline."""
    names = _titles(columns)
    pairs = [*((method, "local") for method in names if method != "local"), *_PAIRS]
    rows = [pair for pair in pairs if any(differences(each).get(pair) for each in columns.values())]

    def told(pair: tuple[str, str]) -> Entry:
        a, b = pair
        return names[a] if b == "local" else f"{names[a]} minus {names[b]}"

    found = [gained(title, title, differences(each), of=tuple) for title, each in columns.items()]
    shown = [Column("pair", MINUS_LOCAL.title, value=told), *found]
    latex = f"Accuracy minus that of local-only training, {DIFFERENCES} {summary(columns)}"
    return Table.of(name, shown, rows, latex=latex)


def ranks(columns: Columns, name: str = "ranks") -> list[Block]:
    """Return a figure of the methods' average ranks over the comparisons, or the reason why there is no figure."""
    if not columns:
        return []
    accuracy = {
        column: {method: result.final[AFTER_TRANSFER].mean for method, result in each.methods.items()}
        for column, each in columns.items()
    }
    found = ranking(accuracy)
    if found is None:
        alike = plural(len(common(accuracy)), "method")
        known = f"{plural(len(columns), 'comparison')} with {alike} in common"
        return [Text(f"Ranks need at least {FEWEST} comparisons with {FEWEST} methods in common; there are {known}.")]
    alike = "is rejected" if found.p <= ERROR else "is not rejected"
    so = "" if found.p <= ERROR else ", so no difference between ranks is significant"
    caption = (
        f"Average rank of the final accuracy over {len(columns)} comparisons; 1 is the best. A bar joins methods that "
        f"do not differ significantly: by Nemenyi's test, ranks differ from {found.critical:.2f} on (5 % for all "
        f"pairs). The hypothesis that all methods rank alike {alike} by Friedman's test (p = {found.p:.2g}){so}. Both "
        "tests assume independent comparisons: with the same data in several of them, they are too optimistic."
    )
    return [Picture(name, figures.critical_differences(found), caption)]


def paper_table(columns: Columns) -> Table:
    """Return the paper's numbers for data and partitions of comparisons whose other settings are not the paper's."""
    numbers: dict[str, dict[str, str]] = {}  # by the paper's name of the method
    for each in (each for each in columns.values() if paper.differences(each.settings)):
        dataset, partition = _data(each.settings)
        which = words.clients(each.settings) if paper.one_architecture(each.settings) else partition
        cited = paper.cited(each.settings, paper.names())
        numbers[f"{dataset}, {which}"] = {paper.names()[method]: number for method, number in cited.items()}
    rows = [name for name in dict.fromkeys(paper.names().values()) if any(name in own for own in numbers.values())]
    shown = [PAPER.but(key=title, title=title, value=own.get) for title, own in numbers.items() if own]
    return Table.of("paper", [Column("method", "Method in the paper", value=str), *shown], rows)


def settings_table(columns: Columns) -> Table:
    """Return one row per comparison with the settings in which comparisons differ; no rows if they do not differ."""
    given, same = {name: flat(each.settings) for name, each in columns.items()}, common_settings(columns)
    names = [entry for entry in dict.fromkeys(entry for one in given.values() for entry in one) if entry not in same]

    def of(path: str) -> Column:
        return Column(path, path, value=lambda name: as_text(given[name].get(path)))

    return Table.of("settings", [COMPARISON, *map(of, names)], given if names else [])


def common_settings(columns: Columns) -> dict[str, str]:
    first, *others = [words.as_texts(each.settings) for each in columns.values()]
    return {name: value for name, value in first.items() if all(one.get(name) == value for one in others)}


def _brief(comparison: Comparison) -> Table:
    shown = [
        TITLE,
        accuracy_at(AFTER_TRANSFER),
        gained(MINUS_LOCAL.key, MINUS_LOCAL.title, comparison.gains()),
    ]
    return Table.of("table", shown, comparison.methods.values())


def summary(columns: Columns) -> str:
    """Count the comparisons in which KT-pFL is significantly above local-only, and above its simplest baseline."""
    found = []
    for main, baseline in _PAIRS:
        pairs = [("local", "local-only"), (baseline, title(baseline))]
        verdicts = [_verdict(columns, main, method, name) for method, name in pairs]
        if any(verdicts):
            found.append(f"{title(main)} is {'; '.join(filter(None, verdicts))} (95 % intervals over the seeds).")
    return " ".join(found) or "No comparison has both KT-pFL and local-only training."


def _verdict(columns: Columns, a: str, b: str, name: str) -> str:
    found = [one for each in columns.values() if (one := differences(each).get((a, b)))]
    signs, of = Counter(one.sign for one in found), plural(len(found), "comparison")
    few = sum(one.ends is None for one in found)
    why = f" ({few} with fewer than {FEWEST_SEEDS} seeds)" if few else ""
    if not found:
        return ""
    return f"significantly above {name} in {signs[1]} of {of}, below it in {signs[-1]}, neither in {signs[0]}{why}"


def notes(columns: Columns) -> dict[str, str]:
    """Return the notes on the tables, by term."""
    differing = {name: why for name, each in columns.items() if (why := paper.differences(each.settings))}
    rising = [name for name, each in columns.items() if "local" in each.methods and gaining(each.methods["local"])]
    stopping = [name for name, each in columns.items() if any(one.early_stopping for one in each.methods.values())]
    stopped = f" With early stopping, in {' and '.join(stopping)}: {words.BEST_VALIDATED}." if stopping else ""
    every = "all comparisons" if len(differing) == len(columns) else " and ".join(differing)
    return {
        "Accuracy": f"{words.OWN_MODEL} {words.averaged(None)}{stopped}",
        "Bold": words.BOLD,
        "Differences": DIFFERENCES,
        **signs(result for each in columns.values() for result in each.methods.values()),
        "Columns": "comparisons can differ in their settings, see below. Compare methods within a column.",
        "Length of training": "local-only still improves over the rounds of its final value, so longer training may "
        f"change these comparisons: {', '.join(rising)}."
        if rising
        else "",
        "Paper": words.LANDMARK if len(differing) < len(columns) else "",
        "Not the paper's setting": _list(differing, every) if differing else "",
    }


def _list(differing: Mapping[str, Sequence[str]], every: str) -> str:
    """List the differing settings by comparison. A setting that differs in all of them is listed once, for `every`."""
    first, *others = differing.values()
    same = [why for why in first if all(why in other for other in others)] if others else []
    rest = {name: [why for why in own if why not in same] for name, own in differing.items()}
    return "; ".join(f"{name}: {', '.join(own)}" for name, own in {every: same, **rest}.items() if own) + "."


def _titles(columns: Columns) -> dict[str, str]:
    titles = {method: marked(result) for each in columns.values() for method, result in each.methods.items()}
    return dict(sorted(titles.items(), key=lambda entry: _rank(entry[0], METHODS)))


def _data(settings: dict[str, Any]) -> tuple[str, str]:
    return paper.dataset(settings), plain(str(settings["partition"]["scheme"]))


def _rank(name: str, known: Iterable[str]) -> int:
    """Return the position of a name among the known ones; unknown names come last."""
    names = list(known)
    return names.index(name) if name in names else len(names)
