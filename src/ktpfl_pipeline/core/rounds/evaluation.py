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
        """Return the record with all measurements of the clients that are not `away`.

        `AT_ONCE` clients are evaluated at a time, so that not all models that `personal` makes are in memory at once.
        """
        method, fed = self.method, self.fed
        after, history, cohort = ended.after, ended.history, ended.report.after_local
        ids = [client.id for client in fed.clients]
        everyone = [n for n in ids if n not in away]
        earlier = history[-1].accuracy.get(AFTER_TRANSFER, []) if history else []
        stands = {n: x for n, x in zip(ids, earlier, strict=bool(earlier)) if not math.isnan(x)}
        validated = {client.id for client in fed.clients if len(client.validation)}
        validated = validated if validated.difference(fed.adversary_ids) else set()  # a mean is over benign clients
        points = [AFTER_LOCAL, AFTER_TRANSFER, *[VALIDATION] * bool(validated), *(f"{ADAPTED}{e}" for e in adapt)]
        accuracy: dict[str, list[float]] = {point: [] for point in points}
        measured: dict[str, list[float]] = {name: [] for name in MEASURES}
        loss: list[float] = []
        for start in range(0, len(everyone), AT_ONCE):
            some = everyone[start : start + AT_ONCE]
            absent = [n for n in some if n not in cohort and n not in stands]
            stored = method.personal(ended.before, absent, fed) if absent else {}
            trained = select({**stored, **cohort}, [n for n in some if n in stored or n in cohort])
            local = {n: found.accuracy for n, found in self.of_models(trained, "test").items()}
            accuracy[AFTER_LOCAL] += [local[n] if n in local else stands[n] for n in some]
            personal = method.personal(after, some, fed)
            test = self.of_models(personal, "test")
            accuracy[AFTER_TRANSFER] += [test[n].accuracy for n in some]
            loss += [test[n].loss for n in some]
            if validated:
                validation = self.of_models(select(personal, [n for n in some if n in validated]), "validation")
                accuracy[VALIDATION] += [validation[n].accuracy if n in validated else math.nan for n in some]
            for name in MEASURES:
                measured[name] += [getattr(test[n], name) for n in some]
            if pool is not None:
                measured.setdefault("global_accuracy", []).extend(accuracies_on(fed, pool, personal))
            untuned = method.untuned(after, personal, fed) if adapt else {}
            for e in adapt:
                accuracy[f"{ADAPTED}{e}"] += adapted(method, after, untuned, e, fed)
        # `on_divergence` does not apply: mixing hides which client diverged, and an evaluation must not change a run
        if found := {n: f"its test loss is {x}" for n, x in zip(everyone, loss, strict=True) if not math.isfinite(x)}:
            raise DivergedError(found)
        loss_by_phase = {**ended.record.loss, "test": loss}
        record = replace(ended.record, accuracy=accuracy, measures=measured, loss=loss_by_phase)
        return _with_earlier(record, ids, everyone, history) if away else record


def _with_earlier(found: RoundRecord, ids: list[int], there: list[int], history: Sequence[RoundRecord]) -> RoundRecord:
    """Return a record of values for the clients `there`, filled up to all clients with their last earlier values.

    A client without an earlier value has NaN. An evaluation point without any value is left out.
    """
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

    accuracy = {name: whole("accuracy", name, values) for name, values in found.accuracy.items()}
    return replace(
        found,
        accuracy={name: values for name, values in accuracy.items() if not all(map(math.isnan, values))},
        measures={name: whole("measures", name, values) for name, values in found.measures.items()},
        loss={**found.loss, "test": whole("loss", "test", found.loss["test"])},
        stale=[n for n in ids if n not in there],
    )


def pooled_test(fed: Federation, limit: int) -> LabeledDataset:
    """Return at most `limit` test samples of all clients together, drawn uniformly; repeated calls draw the same."""
    splits = [fed.held_out(n, "test") for n in fed.by_id]
    ends = torch.tensor([len(split) for split in splits]).cumsum(0)
    chosen = torch.randperm(int(ends[-1]), generator=fed.stream("pooled test"))[:limit]
    owner = torch.searchsorted(ends, chosen, right=True)
    parts = [split.take(chosen[owner == place] - (ends[place] - len(split))) for place, split in enumerate(splits)]
    return LabeledDataset(torch.cat([part.inputs for part in parts]), torch.cat([part.labels for part in parts]))


def accuracies_on(fed: Federation, samples: LabeledDataset, models: Models) -> list[float]:
    """Return each model's accuracy on the same samples, which belong to no client."""
    inputs, labels = sent(samples.inputs, fed.device), sent(samples.labels, fed.device)
    answers = fed.run("evaluate", operations.cross_logits, {n: (params, inputs) for n, params in models.items()})
    return fetched([(answers[n].argmax(dim=1) == labels).double().mean() for n in models])


def adapted(method: Method[State], state: State, models: Models, epochs: int, fed: Federation) -> list[float]:
    """Return each model's accuracy on its client's test split after `epochs` of the method's own local training.

    `models` are those that clients would use now (`Method.untuned`). `Method.adapt` trains them, and the trained models
    are discarded. With 0 epochs the model is evaluated as it is.
    """
    trained = method.adapt(state, models, epochs, fed) if epochs else models
    return [found.accuracy for found in fed.evaluate(trained, "test").values()]
