"""Words that all reports share."""

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from ktpfl_pipeline.analysis import convergence
from ktpfl_pipeline.analysis import results as analysis
from ktpfl_pipeline.analysis.results import MethodResult
from ktpfl_pipeline.analysis.statistics import FEWEST_SEEDS
from ktpfl_pipeline.core.identity import flat
from ktpfl_pipeline.core.metrics import ADAPTED, LAST

HEADLINE = "each client's own model at the end of the round on that client's test samples,"
FEW = f"Fewer than {FEWEST_SEEDS} seeds have no interval"
INTERVAL = (
    f"paired by seed, with the 95 % t interval over the seeds; bold where it excludes zero. {FEW}, and intervals are "
    "not corrected for their number."
)
CORRECTED = (
    "paired by seed, with its t interval over the seeds. The differences of a column are tested together, at 95 % for "
    "all of them by Holm's step-down, so that their intervals are those of 95 % or wider; bold where one excludes "
    f"zero. {FEW}."
)
BEST = (
    "the best accuracy of a column, where the 95 % t intervals of its differences to all others, paired by seed and "
    "corrected for their number, exclude zero"
)
BOLD = f"{BEST}; a difference, where its corrected one does. No bold: the seeds do not decide."
LANDMARK = (
    "Table 1 of the paper, with the same data, partition, clients, models, epochs and batches. It has no local-only "
    "row, and states neither rounds, temperature nor evaluation point: a landmark, not a target."
)
MEASURES = {
    "balanced_accuracy": "Balanced accuracy",
    "macro_f1": "Macro F1",
    "auc": "AUC",
    "calibration_error": "Calibration error",
    "global_accuracy": "Global accuracy",
}
"""Names of the measures of models after transfer."""
NUMBERS = ("no", "one", "two", "three", "four", "five")
"""How many evaluations count, in words."""
RUNS = "Every number above comes from these runs. In MLflow, runs with equal settings have equal keys."


def plural(number: int, word: str) -> str:
    """Return a number with its noun: ``1 round``, ``3 rounds``."""
    return f"{number} {word}{'' if number == 1 else 's'}"


def clients(settings: Mapping[str, Any]) -> str:
    """Return how many clients an experiment asks for: ``20 clients``, or all of the source."""
    asked = settings["clients"]
    return "all clients of the source" if asked is None else plural(asked, "client")


def listed_seeds(seeds: Sequence[int]) -> str:
    """Return which seeds: ``seed 0``, ``seeds 0, 1``."""
    return f"seed{'s' * (len(seeds) > 1)} {', '.join(map(str, seeds))}"


def unreliable(settings: Mapping[str, Any]) -> list[str]:
    """Return how far an experiment's clients cannot be relied on, and how many are held out."""
    late, poor = settings.get("stragglers", {}), settings.get("budgets", {})
    chance, held = settings.get("availability", 1.0), settings.get("newcomers", 0.0)
    slow, limited = late.get("share", 0), poor.get("share", 0)
    told = {
        f"a sampled client shows up with probability {chance:g}": chance < 1,
        f"{_percent(slow)} of the clients are {plural(late.get('delay', 1), 'round')} late": slow,
        f"{_percent(limited)} of the clients take {_percent(poor.get('epochs', 1))} of the local epochs": limited,
        f"{_percent(held)} of the clients are newcomers, who join after the last round": held,
    }
    return [words for words, so in told.items() if so]


def private(settings: Mapping[str, Any], spent: Sequence[float]) -> str:
    """Return how private an experiment's local training is; empty where it is not.

    Args:
        settings: the experiment's.
        spent: ε of all clients and runs, so far.
    """
    noise = settings.get("training", {}).get("privacy") or {}
    epsilon = f", ε at most {max(spent):.2f} at δ = {noise['delta']:g}" if noise and spent else ""
    how = "private local training: noise {noise_multiplier:g}, gradients clipped to {max_grad_norm:g}"
    return how.format(**noise) + epsilon if noise else ""


def lean(settings: Mapping[str, Any]) -> str:
    """Return how an experiment's predictions travel; empty where all do as they are."""
    asked = settings.get("knowledge", {})
    encoding, cache, select = (asked.get(name) for name in ("encoding", "cache", "select"))
    classes = f"the {asked.get('k')} likeliest classes" if encoding == "top_k" else encoding
    told = {
        f"as {plain(str(classes))}": encoding not in (None, "float32"),
        f"not again within {cache} rounds": cache,
        f"the surest {_percent(select or 0.0)} alone": select not in (None, 1.0),
    }
    return f"predictions travel {', '.join(found)}" if (found := [words for words, so in told.items() if so]) else ""


def _percent(share: float) -> str:
    return f"{100 * share:g} %"


def too_few(seeds: int) -> str:
    """Return why there is no interval: ``with 2 seeds, where an interval needs at least 3``; empty where there is one.

    This is the one place that states the rule in words.
    """
    if seeds >= FEWEST_SEEDS:
        return ""
    return f"with {plural(seeds, 'seed')}, where an interval needs at least {FEWEST_SEEDS}"


def gaining(result: MethodResult) -> str:
    """Say by how much a method still gains over the rounds of its final value; empty where it does not."""
    found = convergence.gain(result)
    if found is None or not found.goes_on:
        return ""
    ends = found.difference.ends
    over = f", 95 % interval [{100 * ends[0]:.1f}, {100 * ends[1]:.1f}]" if ends else ""
    halves = "the last is" if found.half == 1 else f"the mean of the last {found.half} is"
    before = "the first" if found.half == 1 else f"that of the first {found.half}"
    return (
        f"{result.title} still gains: of its evaluations in rounds {found.first} to {found.last}, which make the final "
        f"value, {halves} {100 * found.difference.mean:.1f} points above {before}{over}. Longer training may change "
        "the comparison."
    )


def over_seeds(seeds: int) -> str:
    """Return what a caption says of several seeds: ``, mean over 3 seeds``."""
    return f", mean over {seeds} seeds" if seeds > 1 else ""


def averaged(seeds: int | None, results: Sequence[MethodResult] = ()) -> str:
    """Say of what an accuracy is the mean.

    Args:
        seeds: how many; None stands for comparisons with seeds of their own.
        results: whose accuracies they are, with their runs; none where it is not known how many evaluations counted.
    """
    over = ", then over {}; ± is the sample standard deviation over seeds"
    over = over.format("seeds" if seeds is None else f"{seeds} seeds") if seeds != 1 else "; one seed"
    if any(run.patience is not None for result in results for run in result.runs):
        return f"mean over clients in the round with the highest mean validation accuracy{over}."
    found = sorted({len(run.counted) for result in results for run in result.runs})
    if found == [1]:
        return f"mean over clients of the last evaluation{over}."
    ends = list(dict.fromkeys(NUMBERS[count] for count in (found[:1] + found[-1:])))
    last = f"last {' to '.join(ends)} evaluations" if found else f"last evaluations, at most {NUMBERS[LAST]}"
    return f"mean over clients of the mean of the {last}{over}."


def plain(name: str) -> str:
    """Return a name of the configuration as words."""
    return name.replace("_", " ")


def setting(value: Any) -> str:
    """Return a setting as it is written under conf/."""
    if isinstance(value, list | tuple):
        return ", ".join(map(setting, value))
    if isinstance(value, Mapping):
        bare = "encoding"  # the word that stands for its section
        return " ".join(setting(each) if name == bare else f"{name}={setting(each)}" for name, each in value.items())
    return {"None": "null", "True": "true", "False": "false"}.get(str(value), str(value))


def settings(values: Mapping[str, Any]) -> dict[str, str]:
    """Return nested settings flat, as they are written under conf/."""
    return {name: setting(value) for name, value in flat(values).items()}


def aggregates(result: MethodResult) -> bool:
    """Say whether what comes back to the clients of a method is models alone.

    Its clients send models, and beside them at most a few numbers that do not come back.
    """
    sent = result.traffic
    models = sent["parameters_up"] or sent["parameters_down"]
    return bool(models) and not sent["knowledge_down"] and sent["knowledge_up"] <= sent["parameters_up"]


def point_title(point: str) -> str:
    """Return what an evaluation point is called in a column."""
    if point.startswith(ADAPTED):
        return f"After {plural(int(point.removeprefix(ADAPTED)), 'further epoch')}"
    known = {analysis.HEADLINE: "After transfer", "after_local": "After local training", **MEASURES}
    return known.get(point, point.capitalize())


def leading(point: str) -> str:
    """Return what a sentence adds where another metric than accuracy leads: `` in AUC``."""
    return f" in {MEASURES[point]}" if point in MEASURES else ""


def wrapped(text: str, width: int) -> list[str]:
    """Return a text in lines; words stay whole, also KT-pFL."""
    return textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False)
