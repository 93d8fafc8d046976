"""What is measured of the clients' models at the end of a round, before and after the knowledge transfer."""

import math
import weakref
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from ktpfl_pipeline.core.dataset import LabelledDataset
from ktpfl_pipeline.core.errors import diverged
from ktpfl_pipeline.core.federation import Federation
from ktpfl_pipeline.core.method import Method, RoundReport
from ktpfl_pipeline.core.metrics import ADAPTED, MEASURES, VALIDATION, Evaluation, RoundRecord
from ktpfl_pipeline.core.setting import Split
from ktpfl_pipeline.core.weights import Handle, Models, Params, select

State = TypeVar("State")
AT_ONCE = 20
"""Clients whose models are there at once for an evaluation: memory, not results."""


@dataclass
class Memory:
    """The last evaluation of each client's model, so that a model that did not change is not evaluated again.

    Models are referenced weakly, so a model that was made only for evaluation can be freed afterwards.
    """

    known: dict[tuple[int, Split], tuple[list["weakref.ref[Any]"], Evaluation]] = field(default_factory=dict)

    def evaluate(self, fed: Federation, models: Models, split: Split) -> dict[int, Evaluation]:
        """Return the evaluation of each model on its client's `split`, from memory where the model is known."""
        fresh = {n: params for n, params in models.items() if not self._knows(n, split, params)}
        for n, evaluation in fed.evaluate(fresh, split).items():
            self.known[n, split] = ([weakref.ref(part) for part in _parts(fresh[n])], evaluation)
        return {n: self.known[n, split][1] for n in models}

    def _knows(self, n: int, split: Split, params: Params) -> bool:
        seen = [reference() for reference in self.known.get((n, split), ([], None))[0]]
        parts = _parts(params)
        return len(seen) == len(parts) and all(a is b for a, b in zip(seen, parts, strict=True))


def _parts(params: Params) -> list[Any]:
    """Return what makes a model that one; where it lives elsewhere it is not opened for this."""
    return [params] if isinstance(params, Handle) else list(params.values())


def evaluate(
    record: RoundRecord,
    method: Method[State],
    before: State,
    after: State,
    report: RoundReport,
    fed: Federation,
    memory: Memory,
    history: Sequence[RoundRecord],
    adapt: Sequence[int] = (),
    pool: LabelledDataset | None = None,
    away: Collection[int] = (),
) -> RoundRecord:
    """Evaluate every client, sampled or not, after local training and after the knowledge transfer.

    Clients are evaluated a few at a time, so that models that `personal` creates are not all in memory at once.

    Args:
        record: the record of the round, to which accuracies, measures and the test loss are added.
        method: the method whose models are evaluated.
        before: the state before the round.
        after: the state after the round.
        report: the report of the round.
        fed: the federation.
        memory: the earlier evaluations.
        history: the records of the earlier rounds; a client outside the cohort keeps the last round's values.
        adapt: numbers of extra local epochs after which models are evaluated too; these values are not remembered.
        pool: samples of all clients on which every model is evaluated; None: no such evaluation.
        away: clients that cannot be asked. Their last measured value counts, or NaN if there is none. If no client
            answers, and none ever did, the round counts as not evaluated.

    Raises:
        DivergedError: if a model's test loss is not finite, though its weights may be.
    """
    ids = [client.id for client in fed.clients]
    everyone = [n for n in ids if n not in away]
    earlier = history[-1].accuracy.get("after_transfer", []) if history else []
    stands = {n: x for n, x in zip(ids, earlier, strict=bool(earlier)) if not math.isnan(x)}
    validated = all(len(client.validation) for client in fed.clients)
    points = ["after_local", "after_transfer", *[VALIDATION] * validated, *(f"{ADAPTED}{e}" for e in adapt)]
    accuracy: dict[str, list[float]] = {point: [] for point in points}
    measured: dict[str, list[float]] = {name: [] for name in MEASURES}
    loss: list[float] = []
    for start in range(0, len(everyone), AT_ONCE):
        some = everyone[start : start + AT_ONCE]
        absent = [n for n in some if n not in report.after_local and n not in stands]
        stored = method.personal(before, absent, fed) if absent else {}
        trained = select({**stored, **report.after_local}, [n for n in some if n in stored or n in report.after_local])
        local = {n: found.accuracy for n, found in memory.evaluate(fed, trained, "test").items()}
        accuracy["after_local"] += [local[n] if n in local else stands[n] for n in some]
        personal = method.personal(after, some, fed)
        test = memory.evaluate(fed, personal, "test")
        accuracy["after_transfer"] += [test[n].accuracy for n in some]
        loss += [test[n].loss for n in some]
        if validated:
            validation = memory.evaluate(fed, personal, "validation")
            accuracy[VALIDATION] += [validation[n].accuracy for n in some]
        for name in MEASURES:
            measured[name] += [getattr(test[n], name) for n in some]
        if pool is not None:
            measured.setdefault("global_accuracy", []).extend(fed.accuracy_on(personal, pool))
        untuned = method.untuned(after, personal, fed) if adapt else {}
        for e in adapt:
            accuracy[f"{ADAPTED}{e}"] += adapted(method, after, untuned, e, fed)
    # whatever `on_divergence` says: after mixing the diverging client is not known, and evaluating must change nothing
    if found := {n: f"its test loss is {x}" for n, x in zip(everyone, loss, strict=True) if not math.isfinite(x)}:
        raise diverged(found)
    record = replace(record, accuracy=accuracy, measures=measured, loss={**record.loss, "test": loss})
    return _with_earlier(record, ids, everyone, history) if away else record


def _with_earlier(found: RoundRecord, ids: list[int], there: list[int], history: Sequence[RoundRecord]) -> RoundRecord:
    """Return the record with earlier values of the clients that are not there; NaN where there is no earlier value."""
    if not there and not any(record.accuracy for record in history):
        losses = {phase: values for phase, values in found.loss.items() if phase != "test"}
        return replace(found, accuracy={}, measures={}, loss=losses)

    def whole(kind: str, name: str, values: list[float]) -> list[float]:
        known: dict[int, float] = {}
        for record in history:
            earlier = getattr(record, kind).get(name, [])
            known |= {n: x for n, x in zip(ids, earlier, strict=bool(earlier)) if not math.isnan(x)}
        known |= dict(zip(there, values, strict=True))
        return [known.get(n, math.nan) for n in ids]

    return replace(
        found,
        accuracy={name: whole("accuracy", name, values) for name, values in found.accuracy.items()},
        measures={name: whole("measures", name, values) for name, values in found.measures.items()},
        loss={**found.loss, "test": whole("loss", "test", found.loss["test"])},
        stale=[n for n in ids if n not in there],
    )


def adapted(method: Method[State], state: State, models: Models, epochs: int, fed: Federation) -> list[float]:
    """Return each model's accuracy on its client's test split after `epochs` of the method's own local training.

    From the model that the client would use now (`Method.untuned`), as `Method.adapt` trains it; the trained model is
    discarded. With 0 epochs the model is evaluated as it is.
    """
    trained = method.adapt(state, models, epochs, fed) if epochs else models
    return [found.accuracy for found in fed.evaluate(trained, "test").values()]
