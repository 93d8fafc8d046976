"""Phrases that all reports share."""

import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ktpfl_pipeline import methods
from ktpfl_pipeline.analysis.clients import gain
from ktpfl_pipeline.analysis.results import MethodResult
from ktpfl_pipeline.analysis.statistics import FEWEST_SEEDS
from ktpfl_pipeline.core.client.measures import BINS
from ktpfl_pipeline.core.errors import plural, written
from ktpfl_pipeline.core.identity import flat
from ktpfl_pipeline.core.method import Method
from ktpfl_pipeline.core.metrics import ADAPTED, AFTER_LOCAL, AFTER_TRANSFER, CHOSEN, LAST, VALIDATION
from ktpfl_pipeline.core.settings import Budgets, Knowledge, Reliability, Stragglers
from ktpfl_pipeline.reports.style import NAMED

OWN_MODEL = "each client's own model at the end of the round on that client's test samples,"
FEW = f"Fewer than {FEWEST_SEEDS} seeds give no interval"
PAIRED = "paired by seed, with t intervals over the seeds, corrected for the number of rows"
CORRECTED = f"{PAIRED}; significant, in bold, if the interval excludes zero."
FILLED = f"{PAIRED}. Filled: significant, the interval excludes zero"
INTERVALS = (
    "the differences of a column are tested together by Holm's step-down procedure, at 95 % for all of them, so an "
    f"interval has a level of 95 % or more. A difference whose interval excludes zero is significant. {FEW}."
)
BOLD = (
    "the best accuracy of a column, if its differences to all others, paired by seed and corrected for their number, "
    "are significant; and every significant difference. If nothing is bold, no difference is significant."
)
BEST_VALIDATED = "mean over clients in the round with the highest mean validation accuracy"
FRONTIER = "The line joins the methods that no other method equals in accuracy with less traffic."
LANDMARK = (
    "Table 1 of the paper, or Table 2 for one architecture, with the same data, partition, clients, models, epochs and "
    "batches. The paper has no local-only row and states no rounds, no temperature and no evaluation point, so its "
    "numbers are only a rough guide."
)


class Measure(NamedTuple):
    """The title and the meaning of a measure in reports."""

    title: str
    meaning: str


MEASURES = {
    "balanced_accuracy": Measure(
        "Balanced accuracy",
        "mean over the classes of a client's test samples of the share recognized: rare classes count like frequent "
        "ones.",
    ),
    "macro_f1": Measure("Macro F1", "mean over the same classes of the harmonic mean of precision and recall."),
    "global_accuracy": Measure(
        "Global accuracy", "accuracy of each client's model on test samples drawn from those of all clients."
    ),
    "auc": Measure(
        "AUC",
        "area under the ROC curve times 100, one class against the rest, mean over the classes that some but not all "
        "of a client's test samples have; equal scores count one half. A client with one class has no AUC.",
    ),
    "calibration_error": Measure(
        "Calibration error",
        f"expected calibration error: mean distance of confidence and accuracy over {BINS} bins of confidence, "
        "weighted by their samples. 0: of predictions made with 80 % confidence, 80 % are right.",
    ),
}
"""Title and meaning of each measure of models after transfer, in the order of its columns."""
SKEW = {
    "jensen_shannon": Measure(
        "Jensen–Shannon divergence", "mean over pairs of clients, in bits: 0 alike, 1 no class shared"
    ),
    "hellinger": Measure("Hellinger distance", "mean over pairs of clients: 0 alike, 1 no class shared"),
    "earth_mover": Measure(
        "Earth mover's distance", "to the classes of all clients together, mean over clients: 0 to 2"
    ),
    "classes": Measure("Effective classes", "exp of the entropy of a client's class distribution, mean over clients"),
    "sizes": Measure(
        "Spread of sizes", "standard deviation of the clients' numbers of samples, in units of their mean"
    ),
}
"""Title and meaning of each measure of `LabelSkew`."""
MAJORITY = Measure(
    "Majority class",
    "the accuracy of a client that always predicts the most frequent class of its own training samples. Its "
    "difference to local-only is not tested, because this is not a method.",
)
NUMBERS = ("no", "one", "two", "three", "four", "five")
"""Small numbers in words, for the number of evaluations in a final value."""


def clients(settings: Mapping[str, Any]) -> str:
    """Return the number of an experiment's clients in words: ``20 clients``, or all clients of the source."""
    asked = settings["clients"]
    return "all clients of the source" if asked is None else plural(asked, "client")


def listed_seeds(seeds: Sequence[int]) -> str:
    """Return the seeds: ``seed 0``, ``seeds 0, 1``."""
    return f"seed{'s' * (len(seeds) > 1)} {', '.join(map(str, seeds))}"


def unreliable(settings: Mapping[str, Any]) -> list[str]:
    """Return how clients of an experiment are unreliable, and the share of clients held out of training."""
    late, limited = Stragglers(**settings.get("stragglers", {})), Budgets(**settings.get("budgets", {}))
    chance, held = settings.get("availability", Reliability.availability), settings.get("newcomers", 0.0)
    stated = {
        f"a sampled client is available with probability {chance:g}": chance < 1,
        f"{100 * late.share:g} % of the clients are {plural(late.delay, 'round')} late": late.share,
        f"{100 * limited.share:g} % of the clients have limited compute: {100 * limited.epochs:g} % of the local "
        "epochs": limited.share,
        f"{100 * held:g} % of the clients are new: they join after the last round": held,
    }
    return [each for each, applies in stated.items() if applies]


def lean(settings: Mapping[str, Any]) -> list[str]:
    """Return how an experiment's predictions are sent: their compression and noise."""
    asked = Knowledge(**settings.get("knowledge", {}))
    sent = f"the {asked.k} most probable classes" if asked.encoding == "top_k" else plain(asked.encoding)
    stated = {
        f"sent as {sent}": asked.encoding != Knowledge.encoding,
        f"not sent again within {plural(asked.cache, 'round')}": asked.cache,
        f"only the {100 * asked.select:g} % with the highest confidence": asked.select < 1,
        f"with noise of σ = {asked.noise:g} in each probability": asked.noise,
    }
    return [each for each, applies in stated.items() if applies]


def private(settings: Mapping[str, Any], spent: Sequence[float]) -> str:
    """Return the noise and the ε of private local training, `spent` by all clients and runs; empty without noise."""
    noise = settings.get("training", {}).get("privacy") or {}
    epsilon = f", ε at most {max(spent):.2f} at δ = {noise['delta']:g}" if noise and spent else ""
    how = "private local training: noise {noise_multiplier:g}, gradients clipped to {max_grad_norm:g}"
    return how.format(**noise) + epsilon if noise else ""


def order_of(clients: int) -> str:
    """Return the order of the clients in a figure of a matrix, and what follows their names there, as a sentence."""
    named = ", which are in brackets after its name" if clients <= NAMED else ""
    return f"Clients are ordered by the two most frequent classes of each client{named}."


def sentences(*parts: str) -> str:
    return " ".join(filter(None, parts))


def too_few(seeds: int) -> str:
    """Return why there is no interval: ``2 seeds, and an interval needs at least 3``; empty if there is an interval."""
    return "" if seeds >= FEWEST_SEEDS else f"{plural(seeds, 'seed')}, and an interval needs at least {FEWEST_SEEDS}"


def gaining(result: MethodResult) -> str:
    """Return how much a method still improves over the rounds of its final value, in words; empty if it does not."""
    found = gain(result)
    if found is None or not found.goes_on:
        return ""
    ends = found.difference.ends
    over = f", 95 % interval [{100 * ends[0]:.1f}, {100 * ends[1]:.1f}]" if ends else ""
    late, early = ("the last", "the first")
    if found.half > 1:
        late, early = (f"the mean of {which} {found.half}" for which in (late, early))
    return (
        f"{result.title} still improves over the rounds of its final value, {found.first} to {found.last}: {late} of "
        f"their evaluations is {100 * found.difference.mean:.1f} percentage points above {early}{over}. Longer "
        "training may change the comparison."
    )


def over_seeds(results: Iterable[MethodResult]) -> str:
    """Return the end of a caption for several seeds: ``, mean over 3 seeds``."""
    seeds = max(len(result.seeds) for result in results)
    return f", mean over {seeds} seeds" if seeds > 1 else ""


def averaged(seeds: int | None, results: Iterable[MethodResult] = ()) -> str:
    """Return how an accuracy is averaged, in words; the number of seeds is None if comparisons have different ones."""
    over = ", then over {}; ± is the sample standard deviation over seeds"
    over = over.format("seeds" if seeds is None else f"{seeds} seeds") if seeds != 1 else "; one seed"
    if any(result.early_stopping for result in results):
        return f"{BEST_VALIDATED}{over}."
    found = sorted({len(run.counted) for result in results for run in result.runs})
    if found == [1]:
        return f"mean over clients of the last evaluation{over}."
    ends = list(dict.fromkeys(NUMBERS[count] for count in (found[:1] + found[-1:])))
    last = f"last {' to '.join(ends)} evaluations" if found else f"last evaluations, at most {NUMBERS[LAST]}"
    return f"mean over clients of the mean of the {last}{over}."


SIGNS: Mapping[str, tuple[Callable[[type[Method[Any]]], bool], str]] = {
    "†": (lambda kind: kind.fits_validation, "fits on the clients' validation samples, which other methods do not use"),
    "‡": (
        lambda kind: kind.trained_last,
        "is evaluated after transfer with models that it fine-tunes, or averages from trained ones, and so is measured "
        "after local training; compare it after equal extra epochs",
    ),
}
"""The marks of methods that are treated differently: a test for such methods, and the difference in words."""


def marked(result: MethodResult) -> str:
    preset = methods.known(result.method)
    return " ".join([result.title, *(sign for sign, (has, _) in SIGNS.items() if preset and has(preset.kind))])


def signs(results: Iterable[MethodResult]) -> dict[str, str]:
    titles = {marked(result): result.title for result in results}
    having = {sign: [title for name, title in titles.items() if sign in name] for sign in SIGNS}
    return {sign: f"{SIGNS[sign][1]}: {', '.join(found)}." for sign, found in having.items() if found}


def plain(name: str) -> str:
    return name.replace("_", " ")


def as_text(value: Any) -> str:
    if isinstance(value, list | tuple):
        return ", ".join(map(as_text, value))
    if isinstance(value, Mapping):
        if value == {"scheme": "iid"}:
            return "same class mix (iid)"
        if value.keys() == {"scheme", "labels_per_client"}:
            return f"{as_text(value['labels_per_client'])} labels per client"
        bare = ("encoding", "scheme")  # the value alone describes the section
        return " ".join(as_text(each) if name in bare else f"{name}={as_text(each)}" for name, each in value.items())
    return value if isinstance(value, str) else written(value)


def as_texts(values: Mapping[str, Any]) -> dict[str, str]:
    return {name: as_text(value) for name, value in flat(values).items()}


def aggregates(result: MethodResult) -> bool:
    """Return whether clients receive only models, and send only models and at most a few numbers."""
    sent = result.traffic
    models = sent["parameters_up"] or sent["parameters_down"]
    return bool(models) and not sent["knowledge_down"] and sent["knowledge_up"] <= sent["parameters_up"]


def metric_title(metric: str) -> str:
    """Return the name of a metric of `Comparison` in a column."""
    if metric.startswith(ADAPTED):
        return f"After {plural(int(metric.removeprefix(ADAPTED)), 'extra epoch')}"
    known = {
        AFTER_TRANSFER: "After transfer",
        AFTER_LOCAL: "After local training",
        CHOSEN: "Chosen",
        VALIDATION: "Validation",
        **{name: measure.title for name, measure in MEASURES.items()},
    }
    return known.get(metric, metric.capitalize())


def in_measure(headline: str) -> str:
    """Return the end of a sentence if the headline is a measure and not accuracy: `` in AUC``."""
    return f" in {MEASURES[headline].title}" if headline in MEASURES else ""


def wrapped(text: str, width: int) -> list[str]:
    """Return text in lines of at most `width` characters, without breaking words such as KT-pFL."""
    return textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False)
