"""Results small enough to work by hand."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from ktpfl_pipeline.analysis.comparison import Comparison
from ktpfl_pipeline.analysis.results import FinishedRun, MethodResult, TheoremCheck, summarize
from ktpfl_pipeline.core.metrics import LEDGERS, RoundRecord

Rounds = Sequence[Sequence[float] | None]
"""For each round, each client's accuracy; None where it was not evaluated."""


def make_run(
    method: str = "kt_pfl",
    seed: int = 0,
    after_transfer: Rounds = ((0.5, 0.7),),
    after_local: Rounds | None = None,
    *,
    coefficients: list[list[float]] | None = None,
    label_counts: list[list[int]] | None = None,
    knowledge: int = 1_000_000,
    parameters: int = 0,
    run_id: str = "",
) -> FinishedRun:
    """Return a run in which every client takes part in every round. The accuracies decide the number of clients."""
    after_local = after_transfer if after_local is None else after_local
    n = next(len(values) for values in after_transfer if values is not None)
    history = [
        RoundRecord(
            round=t,
            cohort=list(range(n)),
            accuracy={} if end is None else {"after_local": list(middle or end), "after_transfer": list(end)},
            loss={"train": [0.1] * n},
            traffic={
                **{ledger: [0] * n for ledger in LEDGERS},
                **({} if method == "local" else {"knowledge_up": [knowledge] * n, "parameters_up": [parameters] * n}),
            },
            seconds={"train": 2.0, "distill": 1.0, "round": 3.5},
        )
        for t, (end, middle) in enumerate(zip(after_transfer, after_local, strict=True), start=1)
    ]
    return FinishedRun(
        experiment="compare_hetero_digits",
        method=method,
        seed=seed,
        partition="two_labels",
        run_id=run_id,
        key=f"key-{method}-{seed}",
        architectures=[("lenet", "mlp")[i % 2] for i in range(n)],
        label_counts=label_counts or [[3, 1, 0] if i % 2 == 0 else [0, 2, 2] for i in range(n)],
        history=history,
        coefficients=coefficients,
    )


def make_result(method: str, *means: float, after_local: Sequence[float] | None = None) -> MethodResult:
    """Return a result with one round and one seed per mean: two clients 10 points around it; KT-pFL has a matrix."""
    matrix = [[0.75, 0.25], [0.5, 0.5]] if method == "kt_pfl" else None
    runs = [
        make_run(
            method,
            seed,
            [(mean - 0.1, mean + 0.1)],
            [(local - 0.1, local + 0.1)],
            coefficients=matrix,
            run_id=f"{seed:02d}-{method}",
        )
        for seed, (mean, local) in enumerate(zip(means, after_local or means, strict=True))
    ]
    return summarize(runs, {"rho": 0.5} if method == "kt_pfl" else {})


def make_clients(
    method: str, values: tuple[float, ...], names: Sequence[str] = ("north", "south", "west"), **changes: Any
) -> MethodResult:
    """Return three seeds with each client's accuracy, on 20 validation samples and 200 test samples of 400."""
    n, test = len(values), 200
    weights = [[0.9 * (i == j) + 0.1 / n for j in range(n)] for i in range(n)] if method == "kt_pfl" else None
    sizes = {"train": [180] * n, "validation": [20] * n, "test": [test] * n}
    answers = ["1" * round(value * test) + "0" * (test - round(value * test)) for value in values]
    known = {"names": list(names), "samples": sizes, "correct": answers, "tested": ["a"] * n, **changes}
    runs = []
    for seed in range(3):
        run = make_run(method, seed, [values], coefficients=weights, label_counts=[[100, 300]] * n)
        history = [replace(r, accuracy={**r.accuracy, "validation": list(values)}) for r in run.history]
        runs.append(replace(run, history=history, **known))
    return summarize(runs, {})


def make_check(own: Sequence[float] = (0.25, 1.0)) -> TheoremCheck:
    """Return a check with two clients. The loss of the learned mixture is 1 for both.

    The fitted mixture is the first client's own model; for the second client it is better than its bounds. On images to
    which it was not fitted, it is worse than the second client's own model.
    """
    fitted = [own[0], 0.75 * own[1]]
    return TheoremCheck(
        fit={"fitted": fitted, "own": list(own), "average": [2.0, 1.5], "learned": [1.0, 1.0]},
        test={"fitted": [0.5, 1.25], "own": [0.5, 1.0], "average": [2.0, 1.5], "learned": [1.0, 1.0]},
        accuracy={"fitted": [1.0, 0.5], "own": [1.0, 0.25], "average": [0.5, 0.5], "learned": [0.75, 0.5]},
        certificate=[1e-9, 5e-9],
        coefficients=[[1.0, 0.0], [0.5, 0.5]],
        samples=[[4, 5], [4, 4]],
    )


@pytest.fixture(scope="session")
def whole() -> MethodResult:
    """Return KT-pFL with two seeds and everything that a run can keep: three matrices, attention, Theorem 1."""
    rounds = [(0.5, 0.7), (0.6, 0.8), (0.7, 0.9)]
    matrices = {1: [[0.9, 0.1], [0.2, 0.8]], 3: [[0.6, 0.4], [0.3, 0.7]]}
    own = {0: [0.85, 0.75, 0.65], 1: [0.75, 0.65, 0.55]}
    runs = [
        replace(
            make_run("kt_pfl", seed, rounds, coefficients=matrices[3], run_id=f"{seed:02d}-kt_pfl"),
            matrices=matrices,
            attention={"own": own[seed], "alike": [0.0] * 3, "others": [1 - weight for weight in own[seed]]},
            theorem=make_check((0.25, 1.0 + seed)),
        )
        for seed in own
    ]
    return summarize(runs, {})


@pytest.fixture(scope="session")
def run() -> Callable[..., FinishedRun]:
    return make_run


@pytest.fixture(scope="session")
def result() -> Callable[..., MethodResult]:
    return make_result


@pytest.fixture(scope="session")
def study() -> list[MethodResult]:
    """Return KT-pFL 90 ± 1, FedMD 80 ± 2 and local-only 88 ± 1, three seeds each. Before distillation FedMD has 87."""
    return [
        make_result("kt_pfl", 0.89, 0.90, 0.91, after_local=(0.90, 0.91, 0.92)),
        make_result("fedmd", 0.78, 0.80, 0.82, after_local=(0.87, 0.87, 0.87)),
        make_result("local", 0.87, 0.88, 0.89),
    ]


def make_settings() -> dict[str, object]:
    """Return the settings of the paper's Table 1."""
    return {
        "seeds": [0, 1, 2],
        "rounds": 1,
        "clients": 20,
        "architectures": ["lenet", "alexnet", "resnet18", "shufflenet_v2"],
        "private": {"source": "fashion_mnist", "classes": None},
        "public": {"source": "mnist", "batch": 3000},
        "partition": {"scheme": "two_labels"},
        "training": {"epochs": 20, "learning_rate": 0.01},
    }


def under(settings: dict[str, Any], results: Sequence[MethodResult]) -> Comparison:
    """Return the comparison of the results as if they were made with these settings."""
    return Comparison([replace(result, settings=settings) for result in results])


@pytest.fixture
def paper_settings() -> dict[str, object]:
    return make_settings()
