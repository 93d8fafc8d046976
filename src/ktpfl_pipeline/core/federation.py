"""The federation that every method receives: the setting, and the operations on many clients at once.

These operations hide batches, devices and dtypes (`client/` for one client, `executors/` for many clients).
"""

import logging
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property, partial
from typing import Any, cast

import torch
from torch import Tensor

from ktpfl_pipeline.core import compatibility, executors
from ktpfl_pipeline.core.client import dp_sgd, operations, rules
from ktpfl_pipeline.core.client.measures import Evaluation
from ktpfl_pipeline.core.client.outcome import Resuming
from ktpfl_pipeline.core.dataset import LabeledDataset
from ktpfl_pipeline.core.errors import DivergedError, InputError, NotCoveredError, listed, named, plural
from ktpfl_pipeline.core.executors.base import Calls, Executor, Key, Operation, PhaseResult, Progress, Value, silent
from ktpfl_pipeline.core.knowledge.channel import Delivery, Message, deliver, false_predictions, noisy
from ktpfl_pipeline.core.matrix.teachers import check_teachers
from ktpfl_pipeline.core.recipe import Recipe
from ktpfl_pipeline.core.setting import Setting, Split
from ktpfl_pipeline.core.transfer import sent
from ktpfl_pipeline.core.weights import Models, Params
from ktpfl_pipeline.core.work import Cost, cost_of

logger = logging.getLogger(__name__)
EVALUATED_ONLY = ("fine_tune", "adapt")
"""Phases whose models are trained only for an evaluation and then discarded."""

States = dict[str, dict[Any, Params]]
"""States by phase, then by client id or, for a model of the server, by architecture."""


@dataclass
class ClientStates:
    """What clients keep between rounds besides their models; the checkpoint contains it.

    This is the state of a client's optimizer, by training phase and, for encoded predictions (`knowledge/channel.py`),
    the cache and the error feedback. A round's states are kept when it ends. Absent clients keep their last states.
    """

    kept: States = field(default_factory=dict)  # the states after the finished rounds
    fresh: States = field(default_factory=dict)  # the states of the current round

    def before(self, phase: str, n: int | str) -> Params:
        """Return the state from which client n, or model n of the server, starts a phase; empty before the first."""
        kept = self.kept.get(phase, {}).get(n, {})
        return self.fresh.get(phase, {}).get(n, kept)

    def add(self, phase: str, states: Mapping[Any, Params]) -> None:
        """Add the states after a phase of the current round."""
        self.fresh.setdefault(phase, {}).update(states)

    def start_attempt(self) -> None:
        """Discard the states of the current round, because the round starts again."""
        self.fresh = {}

    def end_round(self) -> None:
        """Keep the states of the current round."""
        for phase, states in self.fresh.items():
            self.kept.setdefault(phase, {}).update(states)
        self.fresh = {}


@dataclass
class CurrentRun:
    """Decisions for the operations of the current run, and records of its current round."""

    progress: Progress = silent  #: called after each client that has finished a phase
    #: whether stragglers' predictions arrive late; false if stragglers miss rounds instead
    late_predictions: bool = True
    #: pairs of client and round with private training; ε covers one training per client and round
    privately_trained: set[tuple[int, int]] = field(default_factory=set)
    #: mean training loss by phase and client (or name of a model of the server), of the phase's last call
    losses: dict[str, dict[int | str, float]] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)  #: wall time by phase
    #: clients that were restored to their weights from before a training that diverged
    restored: set[int] = field(default_factory=set)
    #: number of samples that each client has backpropagated in this round, by architecture
    samples: dict[int, Counter[str]] = field(default_factory=dict)

    def start_round(self) -> None:
        """Discard the records of the previous round."""
        self.seconds = {}
        self.start_attempt()

    def start_attempt(self) -> None:
        """Discard the records of the current round except its time, because the round starts again."""
        self.privately_trained, self.losses, self.restored, self.samples = set(), {}, set(), {}

    def add(self, phase: str, result: PhaseResult[Any, Any]) -> None:
        """Add the losses and the time of a phase."""
        if result.losses:
            self.losses.setdefault(phase, {}).update(result.losses)
        for n, samples in result.samples.items():
            if isinstance(n, int):  # a model of the server is not a client's work
                self.samples.setdefault(n, Counter()).update(samples)
        self.seconds[phase] = self.seconds.get(phase, 0.0) + result.seconds


@dataclass(frozen=True, eq=False)
class Federation(Setting):
    """A setting with the executor of its clients, and the operations that methods use.

    Arguments that operations share: `models` by client, |S| of them, never written in place; `t`, the round, which
    names the random streams; `batch`, (B,) indices of public samples; `teachers`, (|S|, B, K) probabilities in the
    models' order; `split`, the split of private samples; `epochs`, passes over the training split, where None means E.
    """

    #: runs an operation for many clients; by default the executor that `compute` names
    executor: Executor = field(default=cast("Executor", None), repr=False, compare=False)
    #: the states that clients keep between rounds, if the settings ask for it
    client_states: ClientStates = field(default_factory=ClientStates, repr=False, compare=False)
    #: the settings and data that the federation was made from, which reports show; None for one made by hand
    origin: Any = field(default=None, repr=False, compare=False)
    #: decisions for the current run, and records of the current round
    current: CurrentRun = field(default_factory=CurrentRun, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Check the setting, and make the executor if none is given."""
        super().__post_init__()
        self.check()
        if self.executor is None:
            object.__setattr__(self, "executor", executors.create(self.compute))

    def __repr__(self) -> str:
        names = listed(list(dict.fromkeys(client.architecture for client in self.clients)))
        clients = plural(len(self.clients), "client")
        return f"Federation({clients} with {names}, {len(self.public)} public samples, seed {self.seed})"

    @property
    def private(self) -> bool:
        """Whether local training is differentially private."""
        return self.training.privacy is not None

    def run(self, phase: str, operation: Operation[Value], calls: Calls[Key]) -> dict[Key, Value]:
        """Return the value of a client operation for each client; `phase` is the operation's name in measurements.

        Raises NotCoveredError if training is private and ε does not cover the operation.
        """
        return self._result(phase, operation, calls).values

    def _result(
        self, phase: str, operation: Operation[Value], calls: Calls[Key], resumes: bool = False
    ) -> PhaseResult[Key, Value]:
        if self.private and operation not in dp_sgd.COVERED:
            raise NotCoveredError(f"uses private samples in {getattr(operation, '__name__', operation)}")
        performed = Resuming(operation) if resumes else operation
        result = self.executor.run(self, phase, performed, calls, self.current.progress)
        self.current.add(phase, result)
        return result

    def train(self, models: Models, t: int) -> Models:
        """LocalSGD: return each model trained on its client's private data for E epochs, by DP-SGD if private."""
        if self.private:
            if twice := [n for n in models if (n, t) in self.current.privately_trained]:
                raise NotCoveredError(f"trains client {twice[0]} twice in round {t}")
            self.current.privately_trained.update((n, t) for n in models)
        return self.train_with(dp_sgd.train if self.private else operations.train, models, t)

    def train_by(
        self,
        rule: rules.Rule,
        models: Models,
        t: int,
        others: Mapping[int, rules.Vectors] | None = None,
        epochs: Mapping[int, int] | None = None,
        part: str = "",
        steps: int | None = None,
    ) -> tuple[Models, dict[int, rules.Vectors]]:
        """Return each model trained by the method's own rule, and the rule's other vectors after the training.

        With t = 0 the models are trained for an evaluation only; see `fine_tune`.

        Args:
            rule: the rule of one step; see `rules.train`.
            others: other vectors, (d,), that the rule needs for each client.
            epochs: local epochs by client; None: the E epochs of the settings, or fewer with limited compute.
            part: part of the names of the random streams, for a second training in one round.
            steps: the number of steps, in as many epochs as they take; None means all steps of `epochs`.
        """
        if conflict := compatibility.changed_step(self):  # the method may not have declared its `own_step`
            raise InputError(conflict.text())
        before = {n: (params, (others or {}).get(n, ())) for n, params in models.items()}
        if steps is not None:
            epochs = dict.fromkeys(models, steps)
        own = {n: self.training_of(n) for n in models}
        passes = epochs or {n: recipe.epochs for n, recipe in own.items()}
        most = {n: recipe.steps if epochs is None else steps for n, recipe in own.items()}
        calls = {n: (params, rule, given, t, passes[n], most[n], part) for n, (params, given) in before.items()}
        phase = "train" if t else "fine_tune" if steps is None else "adapt"
        found = self.run_training(phase, rules.train, calls, before)
        return {n: params for n, (params, _) in found.items()}, {n: vectors for n, (_, vectors) in found.items()}

    def train_with(self, operation: Operation[Params], models: Models, t: int, *arguments: Any) -> Models:
        """Return each model trained by a method's own ``operation(workspace, n, model, t, *arguments)``.

        With t = 0 the models are trained for an evaluation only; see `fine_tune`.
        """
        calls = {n: (params, t, *arguments) for n, params in models.items()}
        return self.run_training("train" if t else "fine_tune", operation, calls, models)

    def train_together(
        self, operation: Operation[Any], models: tuple[Models, ...], t: int, *arguments: Any
    ) -> tuple[Models, ...]:
        """Return several models of each client as `train_with` does, trained together by one operation.

        It is called as ``operation(workspace, n, *models, t, *arguments)``, and returns the same number of models.
        """
        before = {n: tuple(part[n] for part in models) for n in models[0]}
        calls = {n: (*own, t, *arguments) for n, own in before.items()}
        found = self.run_training("train" if t else "fine_tune", operation, calls, before)
        return tuple({n: own[place] for n, own in found.items()} for place in range(len(models)))

    def fine_tune(self, models: Models, epochs: int | None = None) -> Models:
        """Return each model trained on its client's private data, for an evaluation only.

        Samples are shuffled with the streams of round 0, which no training round uses, so every evaluation has the same
        order. The learning rate is η₁ without the factor of the schedule.
        """
        return self.train_with(operations.train, models, 0, epochs)

    def fuse(
        self, name: str, operation: Operation[Params], model: Params, recipe: Recipe, t: int, *arguments: Any
    ) -> Params:
        """Return a model of the server trained by a method's own operation; `name` is its name in messages and records.

        The operation is called as ``operation(workspace, name, model, recipe, t, *arguments)``.
        """
        calls = {name: (model, recipe, t, *arguments)}
        return self.run_training("fuse", operation, calls, {name: model}, recipe=recipe)[name]

    def logits(self, models: Models, batch: Tensor, t: int = 0, *, uploaded: bool = True) -> Tensor:
        """Return the logits that each client uploads, (|S|, B, K), in the models' order; models are in eval mode.

        Clients add the noise of `knowledge`, and adversaries upload false logits. Raises DivergedError if logits are
        not finite.

        Args:
            models: the models, by client.
            batch: (B,), the public samples.
            t: the round.
            uploaded: false if the server predicts with models that it received, so that there is no noise.
        """
        there = sent(batch, self.device)
        results = self.run("predict", operations.logits, {n: (params, there) for n, params in models.items()})
        check_finite("predictions", results)
        noise, uploads = self.knowledge.noise, results
        if uploaded and noise:
            uploads = {n: noisy(own, noise, self.stream("prediction noise", t, n)) for n, own in results.items()}
        false = {
            n: false_predictions(self.adversaries.kind, results[n], self.stream("false predictions", t, n))
            for n in self.adversary_ids
            if n in results
        }
        return torch.stack([false.get(n, uploads[n]) for n in models])

    def delivered(self, n: int, message: Message, kept: Params) -> Delivery:
        """Return the delivery of client n's message of predictions, from or to the client; see `deliver`."""
        return deliver(self.knowledge, message, kept)

    def distill(
        self,
        models: dict[Key, Params],
        teachers: Tensor,
        batch: Tensor,
        t: int,
        factors: Mapping[Key, float] | None = None,
    ) -> dict[Key, Params]:
        """Return each client's or server's model, fitted to its teacher on the public samples for R epochs.

        `teachers` may also be one common teacher, (B, K). `factors` multiply the losses; None means 1.
        """
        check_teachers(teachers, list(models))
        there, each = sent(batch, self.device), teachers.expand(len(models), *teachers.shape[-2:])
        given = dict(zip(models, each, strict=True))
        calls: Calls[Key] = {n: (models[n], given[n], there, t) for n in models}
        if factors is not None:
            calls = {n: (models[n], given[n], there, t, factors[n]) for n in models}
        phase = "distill" if all(isinstance(n, int) for n in models) else "fuse"
        return self.run_training(phase, operations.distill, calls, models, recipe=self.distillation)

    def held_out(self, n: int, split: Split, limit: int | None = None) -> LabeledDataset:
        """Return client n's `split`, or `limit` of its samples; repeated calls draw the same samples."""
        samples: LabeledDataset = getattr(self.by_id[n], split)
        if limit is None or limit >= len(samples):
            return samples
        return samples.take(torch.randperm(len(samples), generator=self.stream("held out", split, n))[:limit])

    def class_counts(self, clients: Iterable[int]) -> Tensor:
        """Return how many training samples of each class the clients have, (|S|, K) int64 on the host."""
        return torch.stack([self.held_out(n, "train").labels.bincount(minlength=self.classes) for n in clients])

    def cross_logits(self, models: Models, split: Split, limit: int | None = None) -> dict[int, Tensor]:
        """Return every model's logits on every client's samples, (V_n, |S|, K) by client; models are in eval mode.

        In a real federation the models would be sent to the clients, because private samples stay with the clients.
        """
        parts = [self.held_out(n, split, limit).inputs for n in models]
        inputs = sent(torch.cat(parts), self.device)  # one transfer for all clients
        calls = {n: (params, inputs) for n, params in models.items()}
        if self.private and split != "test":  # test samples are used only to evaluate a run
            raise NotCoveredError(f"predicts private {split} samples with other clients' models")
        answers = self.run("cross_predict", operations.cross_logits, calls)  # (Σ V_n, K) each
        check_finite("predictions", answers)
        stacked = torch.stack([answers[n] for n in models], dim=1)
        return dict(zip(models, torch.split(stacked, [len(part) for part in parts]), strict=True))

    def evaluate(self, models: Models, split: Split) -> dict[int, Evaluation]:
        """Return the evaluation of each model on the `split` of its own client."""
        found = self.run("evaluate", operations.evaluate, {n: (params, split) for n, params in models.items()})
        rows = torch.stack(list(found.values())).tolist() if found else []  # waits for the device once
        return {n: Evaluation.of(row) for n, row in zip(found, rows, strict=True)}

    def own_logits(self, models: Models, split: Split) -> list[Tensor]:
        """Return the logits of each model for its client's `split`, (V_n, K) each, in order.

        Real clients are not asked, because the answer would tell the server about single samples.
        """
        found = self.run("evaluate", operations.own_logits, {n: (params, split) for n, params in models.items()})
        return [found[n].cpu() for n in models]

    @cached_property
    def cost(self) -> Callable[[str], Cost]:
        """The function from an architecture's name to its cost, which is measured on first use; see `work.Cost`."""
        return cache(partial(cost_of, self))

    def training_memory(self) -> list[int]:
        """Return the estimated bytes of a step of plain local training, one number per client; see `Cost.training`.

        The estimate does not include tensors that a method needs besides the trained model.
        """
        sizes = [min(self.training.batch_size, len(client.train)) for client in self.clients]
        costs = [self.cost(client.architecture) for client in self.clients]
        return [one.training(self.training, size) for one, size in zip(costs, sizes, strict=True)]

    def run_training(
        self,
        phase: str,
        operation: Operation[Value],
        calls: Calls[Key],
        before: Mapping[Key, Value],
        *,
        recipe: Recipe | None = None,
    ) -> dict[Key, Value]:
        """Run a client operation that trains, as `run` does, and handle weights and losses that are not finite.

        Divergence is detected here, before a client's result is combined with those of other clients. In
        `EVALUATED_ONLY` phases, optimizers start fresh and their states are not kept. In these phases ``skip`` acts
        like ``restore``, because the client may not be in the cohort and cannot be removed from it.

        Args:
            before: the value that replaces the result of each client that diverged and is restored.
            recipe: the recipe of the training; None means the recipe of local training.

        Raises DivergedError if a client that diverged is not restored, or a model of the server diverged.
        """
        evaluated_only = phase in EVALUATED_ONLY
        keeps = (recipe or self.training).keeps and not evaluated_only
        states = {n: self.client_states.before(phase, n) for n in calls} if keeps else {}
        given: Calls[Key] = {n: (states[n], calls[n]) for n in calls} if keeps else calls
        result = self._result(phase, operation, given, keeps)
        found: dict[int | str, str] = {}
        for n in calls:
            if not math.isfinite(result.losses.get(n, 0.0)):
                found[n] = f"its {phase} loss is {result.losses[n]}"
            elif n in result.diverged:
                found[n] = f"its weights after {phase} are not finite"
        restores = self.on_divergence == "restore" or (evaluated_only and self.on_divergence == "skip")
        if found and (not restores or any(isinstance(n, str) for n in found)):
            raise DivergedError(found)
        for who, what in found.items():
            name = named(who, self.names)
            logger.warning("%s diverged (%s); it is restored to its weights from before %s.", name, what, phase)
            self.current.restored.add(int(who))
            self.current.losses.get(phase, {}).pop(who, None)  # a real client may have sent none
        if keeps:
            self.client_states.add(
                phase, {n: states[n] if n in found else result.optimizer_states.get(n, states[n]) for n in calls}
            )
        return {n: before[n] if n in found else value for n, value in result.values.items()}


def check_finite(what: str, uploads: Mapping[int, Tensor]) -> None:
    """Raise DivergedError if uploads, by client, are not finite; `what` names them, such as ``"predictions"``."""
    whole = torch.stack([upload.isfinite().all() for upload in uploads.values()]).tolist()  # waits once
    if found := {n: f"its {what} are not finite" for n, finite in zip(uploads, whole, strict=True) if not finite}:
        raise DivergedError(found)
