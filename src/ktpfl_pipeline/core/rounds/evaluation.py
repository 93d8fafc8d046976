"""The evaluation of the clients' models at the end of a round, before and after the knowledge transfer."""

import logging
import math
import weakref
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Generic, TypeVar

import torch

from ktpfl_pipeline.core.client import operations
from ktpfl_pipeline.core.client.measures import MEASURES, Evaluation
from ktpfl_pipeline.core.dataset import LabeledDataset
from ktpfl_pipeline.core.errors import ClientsMissing, DivergedError
from ktpfl_pipeline.core.federation import Federation
from ktpfl_pipeline.core.method import Method, RoundReport
from ktpfl_pipeline.core.metrics import ADAPTED, AFTER_LOCAL, AFTER_TRANSFER, VALIDATION, RoundRecord
from ktpfl_pipeline.core.setting import Split
from ktpfl_pipeline.core.transfer import fetched, sent
from ktpfl_pipeline.core.weights import Handle, Models, Params, select

State = TypeVar("State")
logger = logging.getLogger(__name__)
AT_ONCE = 20
"""The number of clients whose models are evaluated together. The value affects memory, not results."""


def _parts(params: Params) -> list[Any]:
    """Return the objects that identify a model: its tensors, or the handle of a remote model, which is not fetched."""
    return [params] if isinstance(params, Handle) else list(params.values())


@dataclass(frozen=True, eq=False)
class Ended(Generic[State]):
    """A round that has ended and is evaluated."""

    record: RoundRecord  #: of the round, to which accuracies, measures and the test loss are added
    before: State  #: the state at the start of the round
    after: State  #: the state at the end of the round
    report: RoundReport  #: what the round returned
    #: records of the earlier rounds. If the last of them was evaluated, its accuracies after transfer are those of
    #: clients outside the cohort after local training
    history: Sequence[RoundRecord]


@dataclass(frozen=True, eq=False)
class Evaluator(Generic[State]):
    """Evaluates the clients' models after rounds of one run."""

    method: Method[State]  #: the method whose models are evaluated
    fed: Federation
    #: numbers of extra local epochs after which models are evaluated too; `known` does not store these evaluations
    adapt: Sequence[int] = ()
    global_samples: int = 0  #: the largest number of pooled test samples for ``global_accuracy``; 0: none
    #: the last evaluation of each client's model, so that a model that did not change is not evaluated again; models
    #: are referenced weakly, so that one that was made only for evaluation can be freed afterwards
    known: dict[tuple[int, Split], tuple[list["weakref.ref[Any]"], Evaluation]] = field(default_factory=dict)
    told: set[str] = field(default_factory=set)  #: the warnings about missing clients that were logged

    def of_models(self, models: Models, split: Split) -> dict[int, Evaluation]:
        """Return the evaluation of each model on its client's `split`; a known model is not evaluated again."""
        fresh = {n: params for n, params in models.items() if not self._knows(n, split, params)}
        for n, evaluation in self.fed.evaluate(fresh, split).items():
            self.known[n, split] = ([weakref.ref(part) for part in _parts(fresh[n])], evaluation)
        return {n: self.known[n, split][1] for n in models}

    def _knows(self, n: int, split: Split, params: Params) -> bool:
        seen = [reference() for reference in self.known.get((n, split), ([], None))[0]]
        parts = _parts(params)
        return len(seen) == len(parts) and all(a is b for a, b in zip(seen, parts, strict=True))

    def evaluate(
        self, ended: Ended[State], *, full: bool = True, pooled: bool = True, is_only: bool = False
    ) -> RoundRecord:
        """Evaluate every client, sampled or not, after local training and after the knowledge transfer.

        If a real client gives no usable answer, its last measured values are used, or NaN if there are none. If no
        client answers and no earlier round was evaluated, the record is that of a round without evaluation.

        Args:
            ended: the round.
            full: whether models are evaluated after `adapt` epochs too.
            pooled: whether models are evaluated on `global_samples` too.
            is_only: whether this is the only evaluation of the run. The executor then decides whether enough clients
                answered, and raises InputError if the run cannot go on.

        Raises DivergedError if a copy that is fine-tuned for the evaluation diverges, or a test loss is not finite.
        """
        fed, t, everyone, away = self.fed, ended.record.round, list(self.fed.by_id), dict[int, str]()
        fed.executor.missing(fed, everyone, t, len(everyone) if is_only else 0)  # lets returned clients take part
        adapt, pool = self.adapt if full else (), self._pool if pooled else None
        while True:
            try:
                found = self._measured(ended, adapt, pool, away)
            except ClientsMissing as error:
                away |= error.found
                if is_only and not fed.executor.enough(everyone, away, t):
                    away = {}
                    fed.executor.missing(fed, everyone, t, len(everyone))
                continue
            except DivergedError as error:
                raise DivergedError(error.found, t, fed.names) from None
            if away:
                without = "evaluated without some clients; their last values, if any, are used"
                what = without if found.accuracy else "not evaluated, because no client has replied"
                why = f"{what}. {ClientsMissing(away, fed.names)}"
                if why not in self.told:  # a client that stays away is named once
                    self.told.add(why)
                    logger.warning("Round %d is %s", t, why)
            return found

    @cached_property
    def _pool(self) -> LabeledDataset | None:
        return pooled_test(self.fed, self.global_samples) if self.global_samples else None

    def _measured(
        self, ended: Ended[State], adapt: Sequence[int], pool: LabeledDataset | None, away: Collection[int]
    ) -> RoundRecord:
        """Return the record with all measurements of the clients that are not `away`, and the others' earlier values.

        `AT_ONCE` clients are evaluated at a time, so that not all models that `personal` makes are in memory at once.
        """
        method, fed = self.method, self.fed
        after, history, cohort = ended.after, ended.history, ended.report.after_local
        ids = list(fed.by_id)
        everyone = [n for n in ids if n not in away]
        stands = _last(ids, [record.accuracy.get(AFTER_TRANSFER, []) for record in history[-1:]])
        validated = {client.id for client in fed.clients if len(client.validation)}
        validated = validated if validated.difference(fed.adversary_ids) else set()  # a mean is over benign clients
        points = [AFTER_LOCAL, AFTER_TRANSFER, *[VALIDATION] * bool(validated), *(f"{ADAPTED}{e}" for e in adapt)]
        accuracy: dict[str, dict[int, float]] = {point: {} for point in points}
        measured: dict[str, dict[int, float]] = {name: {} for name in MEASURES}
        loss: dict[int, float] = {}
        for start in range(0, len(everyone), AT_ONCE):
            some = everyone[start : start + AT_ONCE]
            absent = [n for n in some if n not in cohort and n not in stands]
            stored = method.personal(ended.before, absent, fed) if absent else {}
            trained = select({**stored, **cohort}, [n for n in some if n in stored or n in cohort])
            local = {n: found.accuracy for n, found in self.of_models(trained, "test").items()}
            accuracy[AFTER_LOCAL] |= {n: local[n] if n in local else stands[n] for n in some}
            personal = method.personal(after, some, fed)
            test = self.of_models(personal, "test")
            accuracy[AFTER_TRANSFER] |= {n: found.accuracy for n, found in test.items()}
            loss |= {n: found.loss for n, found in test.items()}
            if validated:
                known = self.of_models(select(personal, [n for n in some if n in validated]), "validation")
                accuracy[VALIDATION] |= {n: known[n].accuracy if n in validated else math.nan for n in some}
            for name in MEASURES:
                measured[name] |= {n: getattr(found, name) for n, found in test.items()}
            if pool is not None:
                measured.setdefault("global_accuracy", {}).update(accuracies_on(fed, pool, personal))
            untuned = method.untuned(after, personal, fed) if adapt else {}
            for e in adapt:
                accuracy[f"{ADAPTED}{e}"] |= dict(zip(some, adapted(method, after, untuned, e, fed), strict=True))
        # `on_divergence` does not apply: mixing hides which client diverged, and an evaluation must not change a run
        if odd := {n: f"its test loss is {x}" for n, x in loss.items() if not math.isfinite(x)}:
            raise DivergedError(odd)
        if away and not everyone and not any(record.accuracy for record in history):
            return ended.record  # no client has replied so far

        def whole(kind: str, name: str, values: dict[int, float]) -> list[float]:
            """Return the values of all clients; one that is away has its last earlier value, or NaN without one."""
            earlier = [getattr(record, kind).get(name, []) for record in history] if away else []
            known = {**_last(ids, earlier), **values}
            return [known.get(n, math.nan) for n in ids]

        found = {point: whole("accuracy", point, values) for point, values in accuracy.items()}
        return replace(
            ended.record,
            accuracy={point: values for point, values in found.items() if not (away and all(map(math.isnan, values)))},
            measures={name: whole("measures", name, values) for name, values in measured.items()},
            loss={**ended.record.loss, "test": whole("loss", "test", loss)},
            stale=[n for n in ids if n in away],
        )


def _last(ids: list[int], records: Sequence[list[float]]) -> dict[int, float]:
    """Return each client's last known value in `records`, the values of all clients or none, from the earliest on."""
    known: dict[int, float] = {}
    for values in records:
        known |= {n: x for n, x in zip(ids, values, strict=bool(values)) if not math.isnan(x)}
    return known


def pooled_test(fed: Federation, limit: int) -> LabeledDataset:
    """Return at most `limit` test samples of all clients together, drawn uniformly; repeated calls draw the same."""
    splits = [fed.held_out(n, "test") for n in fed.by_id]
    ends = torch.tensor([len(split) for split in splits]).cumsum(0)
    chosen = torch.randperm(int(ends[-1]), generator=fed.stream("pooled test"))[:limit]
    owner = torch.searchsorted(ends, chosen, right=True)
    parts = [split.take(chosen[owner == place] - (ends[place] - len(split))) for place, split in enumerate(splits)]
    return LabeledDataset(torch.cat([part.inputs for part in parts]), torch.cat([part.labels for part in parts]))


def accuracies_on(fed: Federation, samples: LabeledDataset, models: Models) -> dict[int, float]:
    """Return each model's accuracy on the same samples, which belong to no client, by client."""
    inputs, labels = sent(samples.inputs, fed.device), sent(samples.labels, fed.device)
    answers = fed.run("evaluate", operations.cross_logits, {n: (params, inputs) for n, params in models.items()})
    found = fetched([(answers[n].argmax(dim=1) == labels).double().mean() for n in models])
    return dict(zip(models, found, strict=True))


def adapted(method: Method[State], state: State, models: Models, epochs: int, fed: Federation) -> list[float]:
    """Return each model's accuracy on its client's test split after `epochs` of the method's own local training.

    `models` are those that clients would use now (`Method.untuned`). `Method.adapt` trains them, and the trained models
    are discarded. With 0 epochs the model is evaluated as it is.
    """
    trained = method.adapt(state, models, epochs, fed) if epochs else models
    return [found.accuracy for found in fed.evaluate(trained, "test").values()]
