"""Checks of the requirements for a model, on random samples."""

from collections.abc import Callable
from functools import partial
from statistics import fmean

from ktpfl_pipeline import models
from ktpfl_pipeline.check import toy
from ktpfl_pipeline.check.methods import demand, timeless
from ktpfl_pipeline.core import engine
from ktpfl_pipeline.core.dataset import Shape
from ktpfl_pipeline.core.engine import Run, Schedule
from ktpfl_pipeline.core.federation import Federation
from ktpfl_pipeline.core.model_facts import ModelFacts
from ktpfl_pipeline.core.setting import Client
from ktpfl_pipeline.core.settings import Compute, LocalTraining
from ktpfl_pipeline.core.work import cost_of
from ktpfl_pipeline.methods import METHODS, create

ROUNDS = 3


def federation(name: str, shape: Shape, classes: int) -> Federation:
    """Return a federation of two clients with the architecture and random samples; three dimensions mean images."""
    sizes = (4 * classes, 2 * classes, 2 * classes)
    splits = {n: [toy.drawn(size, shape, classes, 10 * n + i) for i, size in enumerate(sizes, 1)] for n in (3, 7)}
    clients = tuple(Client(n, name, own[0], own[1], own[2]) for n, own in splits.items())
    return Federation(
        clients=clients,
        public=toy.drawn(2 * classes, shape, classes, 99).inputs,
        public_batch_size=2 * classes,
        classes=classes,
        build=partial(models.build, shape=shape, classes=classes),
        training=LocalTraining(epochs=2, batch_size=classes, learning_rate=0.01),
        compute=Compute(device="cpu"),
    )


def described(facts: ModelFacts, fed: Federation, name: str) -> list[str]:
    """Return lines of text with the properties of a model."""
    cost, head = cost_of(fed, name), facts.head
    lines = [
        f"{cost.parameters // 4:,} trained parameters, {cost.flops:,} operations for one sample",
        f"the layer that makes its logits is {head.name}, with {head.width} inputs" if head else "no head was found",
    ]
    notes = {
        "tied, so counted once: ": facts.tied,
        "frozen, so it stays and does not travel: ": facts.frozen,
        "it writes to its input, so it is given a copy": facts.changes_input,
        "it cannot be trained on a batch of one sample": not facts.takes_one,
    }
    for said, found in notes.items():
        if found:
            lines.append(said + ", ".join(found) if isinstance(found, tuple) else said)
    needing = [(method, preset.kind.needs_head) for method, preset in METHODS.items()]
    for reason in dict.fromkeys(facts.lacks(need) for _, need in needing):
        if reason:
            without = [method for method, need in needing if facts.lacks(need) == reason]
            lines.append(f"it does not fit {', '.join(without)}: {reason}")
    return lines


def learns(fed: Federation, run: Run) -> None:
    """Check that the mean training loss is lower in the last round than in the first."""
    first, last = (fmean(run.history[place].loss["train"]) for place in (0, -1))
    demand(last < first, f"the training loss went from {first:.3f} to {last:.3f} in {ROUNDS} rounds on drawn samples")


def checks(name: str, shape: Shape, classes: int) -> dict[str, Callable[[], list[str] | None]]:
    """Return the checks of an architecture by name, in order."""
    feds, runs = list[Federation](), list[Run]()

    def built() -> list[str]:
        models.build(name, shape, classes)
        feds.extend(federation(name, shape, classes) for _ in range(2))
        return described(feds[0].facts(name), feds[0], name)

    def trains() -> None:
        before = [client.test.inputs.clone() for client in feds[0].clients]
        runs.extend(engine.run(create("local"), fed, Schedule(ROUNDS)) for fed in feds)
        kept = all(bool((client.test.inputs == old).all()) for client, old in zip(feds[0].clients, before, strict=True))
        demand(kept, "training or evaluation wrote to the clients' test samples")

    def repeats() -> None:
        where = toy.difference(timeless(runs[0]), timeless(runs[1]))
        demand(
            not where,
            f"two runs differ, first in {where}: draw with torch's functions only, which are seeded, and keep nothing "
            "in the module beyond parameters and buffers",
        )

    return {
        "can be built, and runs forward and backward": built,
        "trains, and leaves samples as they were": trains,
        "learns": lambda: learns(feds[0], runs[0]),
        "repeats bit for bit": repeats,
    }
