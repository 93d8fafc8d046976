"""Does learning the coefficients help? KT-pFL with its learned matrix against matrices that are not learned.

    python benchmarks/learned_coefficients.py run                           what is missing, about eight hours
    python benchmarks/learned_coefficients.py run --cells cifar10,two_labels --rows learned,frozen --seeds 100,101
    python benchmarks/learned_coefficients.py plan                          the number of runs that are missing
    python benchmarks/learned_page.py                                       the page and its figure, from the kept runs

The clients, rounds and networks are those of benchmarks/converged.py. η₂ and T of each row are first chosen in each
cell by the accuracy on images that no result uses, with one seed: the best of `RATES` at T = 1, and then the better of
1 and `TEMPERATURE` at this rate. So every row has six runs of design in a cell. `run` may be stopped at any time and
started several times at once: a finished run is one line of benchmarks/results/learned_coefficients.csv, and no run is
repeated, unless its design has changed. The datasets are read from the npz files fashion_mnist, fashion_mnist_full,
mnist, cifar10 and cifar100 in the folder KTPFL_REAL_DATA, or in data/01_raw without this variable.
"""

import argparse
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from statistics import fmean
from typing import Any, NamedTuple

import converged
import numpy as np
import torch
from converged import LAST, ROUNDS
from measure import CONFIGURED, RAW, RESULTS
from studies import Rows, Study, in_percent, made_once, trained

from ktpfl_pipeline.analysis.provenance import here_and_now
from ktpfl_pipeline.core import engine
from ktpfl_pipeline.core.errors import DivergedError
from ktpfl_pipeline.core.federation import Federation
from ktpfl_pipeline.core.machine.resources import processor
from ktpfl_pipeline.core.matrix.blocks import overlap
from ktpfl_pipeline.core.method import Method, RoundReport
from ktpfl_pipeline.core.metrics import ADAPTED, LEDGERS
from ktpfl_pipeline.core.weights import Models
from ktpfl_pipeline.in_memory import federation
from ktpfl_pipeline.methods import create
from ktpfl_pipeline.methods.feddf import FedDF, FedDFState
from ktpfl_pipeline.methods.kt_pfl_joint import KTpFLJoint, KTpFLJointState
from ktpfl_pipeline.runs.given import label_counts

DESIGN_SHARE = 0.28
"""The share of a file's images on which η₂ and T are chosen. CIFAR-10 has 2,800 of them, and 7,200 for results."""
SAMPLES, TEST_SHARE = {True: 2760, False: 7200}, {True: 0.674, False: 0.875}
"""The samples of twelve clients, and the share for testing, by whether it is design. 75 of a client remain."""
RATES, TEMPERATURE = (0.001, 0.003, 0.01, 0.03, 0.1), 10.0
"""Values of η₂, and the T of the released code. With the loss T²·KL, η₂ has about the same scale for any T."""
DESIGN_SEED, SEEDS = 0, range(100, 112)
PUBLIC = dict(converged.DATA.values())
"""The public dataset by private dataset."""
CELLS = list(product(PUBLIC, converged.PARTITIONS.values()))
UNTUNED = (0.01, 1.0)
"""η₂ and T of rows without distillation, which do not depend on them."""
OF_MATRIX = ("own_weight", "overlap", "effective")
"""Means over the matrix's rows in the last rounds; see `of_matrix`."""


@dataclass(frozen=True, eq=False)
class RunningState(FedDFState):
    """The state between rounds: the server models, and u_n and b_n of each client as in KT-pFL (joint)."""

    models: Models
    sums: Mapping[int, float]

    @property
    def joint(self) -> KTpFLJointState:
        return KTpFLJointState(self.models, torch.empty(0), {}, torch.empty(0), self.sums)


class RunningFedDF(FedDF):
    """FedDF whose clients use a running mean of their trained models, as in KT-pFL (joint)."""

    title = "FedDF, running mean"
    averaging = KTpFLJoint()

    def init(self, fed: Federation) -> RunningState:
        return RunningState(super().init(fed).prototypes, {}, {})

    def round(self, state: FedDFState, cohort: list[int], t: int, fed: Federation) -> tuple[RunningState, RoundReport]:
        """Run a round of FedDF, and update the running means u_n with the models v_n and w_n before and after it."""
        assert isinstance(state, RunningState)
        after, report = super().round(state, cohort, t, fed)
        starts = super().personal(state, cohort, fed)
        used = {n: self.averaging.averaged(state.joint, n, starts[n], report.after_local[n]) for n in cohort}
        sums = {n: self.averaging.sum_with_next(state.joint, n) for n in cohort}
        return RunningState(after.prototypes, {**state.models, **used}, {**state.sums, **sums}), report

    def personal(self, state: FedDFState, clients: Iterable[int], fed: Federation) -> Models:
        """Return the running means; before a client's first round, the server model."""
        assert isinstance(state, RunningState)
        return {n: state.models.get(n, start) for n, start in super().personal(state, clients, fed).items()}

    def adapt(self, state: FedDFState, models: Models, epochs: int, fed: Federation) -> Models:
        """Return the running means after local training from the server models, as in KT-pFL (joint)."""
        assert isinstance(state, RunningState)
        starts = super().personal(state, models, fed)
        trained = fed.fine_tune(starts, epochs)
        return {n: self.averaging.averaged(state.joint, n, starts[n], w) for n, w in trained.items()}


class Row(NamedTuple):
    """A row of the tables: the method, its hyperparameters, and whether T is also the temperature of the matrix."""

    title: str
    method: str
    values: dict[str, Any] = {}  # noqa: RUF012 - never changed
    own_temperature: bool = False
    tuned: bool = True

    def made(self, temperature: float) -> Method[Any]:
        """Return the method; `temperature` is T."""
        if self.method == "feddf_running":
            return RunningFedDF()
        of_matrix = {"temperature": temperature} if self.own_temperature else {}
        return create(self.method, {**CONFIGURED.get(self.method, {}), **self.values, **of_matrix})


ROWS = {
    "local": Row("Local-only", "local", tuned=False),
    "learned": Row("learned (KT-pFL)", "kt_pfl"),
    "frozen": Row("frozen at 1/N (FedMD)", "kt_pfl", {"update": "frozen"}),
    "overlap": Row("overlap of labels (oracle)", "kt_pfl", {"update": "label_overlap"}),
    "similar": Row("similarity of predictions (Sim-pFL)", "sim_pfl"),
    "random": Row("random rows", "kt_pfl", {"update": "random"}),
    "released": Row("learned as released", "kt_pfl_authors", own_temperature=True),
    "eq7": Row("learned by Eq. (7)", "kt_pfl_paper_literal", own_temperature=True),
    "labels": Row("fitted to validation labels", "kt_pfl_likelihood"),
    "matched": Row("Local-only (matched work)", "local_matched", tuned=False),
    "joint": Row("KT-pFL (joint)", "kt_pfl_joint"),
    "feddf": Row("FedDF", "feddf"),
    "feddf_running": Row("FedDF, running mean", "feddf_running"),
}
GROUPS = [
    ("local", "learned", "frozen", "overlap", "similar", "random"),
    ("released", "eq7", "labels", "matched"),
    ("joint", "feddf", "feddf_running"),
]
"""All rows, the most important first."""
COLUMNS = (
    *("stage", "data", "partition", "row", "seed", "rate", "temperature"),
    *("after_transfer", "after_local", "adapted"),  # means over clients of the last rounds, in percent
    *(f"round_{t}" for t in range(ROUNDS - LAST + 1, ROUNDS + 1)),  # after transfer
    *("megabytes", "samples", *OF_MATRIX),  # sent and received, and backpropagated, per client and round
    *("commit", "processor", "seconds"),
)


class Wanted(NamedTuple):
    """What identifies a run. `rate` is η₂ in the stage ``rate``, and 0 in later stages, which look it up."""

    stage: str  #: ``rate``, ``temperature`` or ``result``
    data: str
    partition: str
    row: str
    seed: int
    rate: float = 0.0

    @property
    def design(self) -> bool:
        """Whether the run only chooses η₂ or T."""
        return self.stage != "result"


def images(design: bool, source: str) -> str:
    """Return the source of the images for design or for results, whose file is made once."""
    file = STUDY.folder / f"{'design' if design else 'result'}-{source}.npz"
    return f"npz:{made_once(file, lambda: part(design, source))}"


def part(design: bool, source: str) -> dict[str, Any]:
    """Return images and labels: the first images of a file are for design, the others for results.

    Of Fashion-MNIST results use only images that are not in the file on which our methods were designed.
    """
    with np.load(RAW / f"{source}.npz") as file:
        given, labels = file["images"], file["labels"]
    if source == "fashion_mnist" and not design:
        seen = {image.tobytes() for image in given}
        with np.load(RAW / "fashion_mnist_full.npz") as file:
            given, labels = file["images"], file["labels"]
        unseen = np.array([image.tobytes() not in seen for image in given])
        return {"images": given[unseen], "labels": labels[unseen]}
    end = round(DESIGN_SHARE * len(given))
    kept = slice(end) if design else slice(end, None)
    return {"images": given[kept], "labels": labels[kept]}


def finish(wanted: Wanted, rows: Rows) -> Rows | None:
    """Run a method, and return the line of its run, without measurements if it diverged.

    Return None if the design that decides η₂ and T is not finished.
    """
    if (found := point(rows, wanted)) is None:
        return None
    (rate, temperature), began = found, time.process_time()
    distillation = {**converged.SETTINGS["distillation"], "learning_rate": rate, "temperature": temperature}
    private = {"samples": SAMPLES[wanted.design]}
    fed = federation(
        images(wanted.design, wanted.data),
        converged.CLIENTS,
        partition={"scheme": wanted.partition, "test_share": TEST_SHARE[wanted.design]},
        seed=wanted.seed,
        public={"source": images(wanted.design, PUBLIC[wanted.data]), "batch": 300},
        **{**converged.SETTINGS, "private": private, "distillation": distillation, "compute": {}},
    )
    line = {name: str(value) for name, value in wanted._asdict().items()}
    line |= {"rate": f"{rate:g}", "temperature": f"{temperature:g}"}
    line |= {"commit": here_and_now().commit, "processor": processor()}
    epochs = [] if wanted.design else [converged.EPOCHS]
    try:
        run = trained(ROWS[wanted.row].made(temperature), fed, ROUNDS, LAST, epochs)
    except DivergedError:
        return [line]
    records = run.history[-LAST:]
    traffic = fmean(sum(fmean(record.traffic[name]) for name in LEDGERS) for record in records)
    line |= {name: in_percent(records, name) for name in ("after_transfer", "after_local")}
    if epochs:
        line["adapted"] = in_percent(records, f"{ADAPTED}{converged.EPOCHS}")
    line |= {f"round_{record.round}": in_percent([record], "after_transfer") for record in records}
    line["megabytes"] = f"{traffic / 1e6:.4f}"
    line["samples"] = f"{fmean(fmean(record.work['samples']) for record in records):.0f}"
    return [{**line, **of_matrix(run, fed), "seconds": f"{time.process_time() - began:.0f}"}]


def of_matrix(run: engine.Run, fed: Federation) -> dict[str, str]:
    """Return three means over the rows of the matrix in the last rounds; nothing without a matrix.

    ``own_weight`` is c_nn, ``overlap`` Σ_m c_nm o_nm with the overlaps o of the true label distributions, and
    ``effective`` the effective number of teachers, 1 / Σ_m c_nm².
    """
    if run.coefficients is None:
        return {}
    c, counts = run.coefficients[-LAST:].double(), label_counts(fed).double()  # (rounds, N, N), (N, K)
    shares = counts / counts.sum(dim=1, keepdim=True)
    mixed = (c * overlap(shares, shares)).sum(dim=2)
    found = c.diagonal(dim1=1, dim2=2).mean(), mixed.mean(), (1 / c.square().sum(dim=2)).mean()
    return {name: f"{float(value):.4f}" for name, value in zip(OF_MATRIX, found, strict=True)}


def identity(line: dict[str, str]) -> Wanted:
    rate = float(line["rate"]) if line["stage"] == "rate" else 0.0
    return Wanted(line["stage"], line["data"], line["partition"], line["row"], int(line["seed"]), rate)


def point(lines: list[dict[str, str]], wanted: Wanted) -> tuple[float, float] | None:
    """Return η₂ and T of a run; None if the design that decides them is not finished."""
    if wanted.stage == "rate":
        return wanted.rate, 1.0
    if not ROWS[wanted.row].tuned:
        return UNTUNED
    found = {
        (float(line["rate"]), float(line["temperature"])): float(line["after_transfer"] or 0.0)
        for line in lines
        if (each := identity(line)).design and each[1:4] == wanted[1:4]
    }
    if not {(rate, 1.0) for rate in RATES} <= found.keys():
        return None
    if wanted.stage == "temperature":
        return max(RATES, key=lambda rate: found[rate, 1.0]), TEMPERATURE
    return max(found, key=found.__getitem__) if len(found) > len(RATES) else None


def everything(cells: list[tuple[str, str]], rows: list[str], seeds: list[int]) -> Iterator[Wanted]:
    """Yield all runs in order: half of the seeds of all groups first, and each group after its design."""
    half = (len(seeds) + 1) // 2
    for some, group in product((seeds[:half], seeds[half:]), GROUPS):
        asked = [row for row in group if row in rows]
        for row, cell in product(asked, cells):
            if ROWS[row].tuned:  # in the second half these runs are finished
                yield from (Wanted("rate", *cell, row, DESIGN_SEED, rate) for rate in RATES)
                yield Wanted("temperature", *cell, row, DESIGN_SEED)
        for seed, row, cell in product(some, asked, cells):
            yield Wanted("result", *cell, row, seed)


def done(lines: list[dict[str, str]]) -> set[Wanted]:
    """Return the finished runs; a result counts only with the η₂ and T that its design chooses."""
    by_row: dict[tuple[str, ...], list[dict[str, str]]] = {}
    for line in lines:
        by_row.setdefault(identity(line)[1:4], []).append(line)
    found = set()
    for own in by_row.values():
        for line in own:
            each = identity(line)
            used = float(line["rate"]), float(line["temperature"])
            if each.design or point(own, each) in (None, used):
                found.add(each)
    return found


STUDY = Study(RESULTS / "learned_coefficients.csv", COLUMNS, done, finish)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=("run", "plan"))
    parser.add_argument("--cells", help="such as cifar10,two_labels; several are joined with +")
    parser.add_argument("--rows", help=f"some of {','.join(ROWS)}")
    parser.add_argument("--seeds", help="such as 100,101")
    given = parser.parse_args()
    cells = [cell for cell in CELLS if given.cells is None or ",".join(cell) in given.cells.split("+")]
    rows = given.rows.split(",") if given.rows else list(ROWS)
    seeds = list(map(int, given.seeds.split(","))) if given.seeds else list(SEEDS)
    if not cells or not set(rows) <= set(ROWS):
        parser.error(f"cells are {'+'.join(map(','.join, CELLS))}, and rows {','.join(ROWS)}")
    wanted = list(dict.fromkeys(everything(cells, rows, seeds)))
    if given.command == "run":
        STUDY.run(wanted)
    else:
        left = STUDY.missing(wanted)
        print(f"{len(left)} of {len(wanted)} runs are missing, {sum(each.design for each in left)} of the design.")


if __name__ == "__main__":
    main()
