"""The cost of a round of KT-pFL by the number of clients N and the number of public images |D_r|.

    python benchmarks/scaling.py           writes a table and a figure to benchmarks/results/<date>-scaling.*

Clients have a LeNet at 1x28x28 and 100 private images, and run in workers. |D_r| is 300 for all N, and N is 20 for all
|D_r|. The server's part is also measured separately, up to N = 10,000: one mixture of teachers and one step of the
matrix, on 300 x 10 predictions with one thread. The clients' cost is linear. The server's cost is quadratic in N and
linear in |D_r|.
"""

import math
from functools import partial

import measure
import torch
from matplotlib.figure import Figure

from ktpfl_pipeline import methods, models
from ktpfl_pipeline.core import engine
from ktpfl_pipeline.core.dataset import LabeledDataset
from ktpfl_pipeline.core.federation import Federation
from ktpfl_pipeline.core.machine import resources
from ktpfl_pipeline.core.matrix.blocks import uniform
from ktpfl_pipeline.core.matrix.objectives import Divergence
from ktpfl_pipeline.core.matrix.teachers import mix_teachers, soft_predictions
from ktpfl_pipeline.core.matrix.updates import eg
from ktpfl_pipeline.core.setting import Client
from ktpfl_pipeline.core.settings import Compute, Distillation, ExecutorSettings, LocalTraining

PRIVATE, TEST, SIZE, CLASSES = 100, 20, 28, 10
CLIENTS, PUBLIC = (20, 50, 100, 200, 1000), (300, 600, 1200, 3000, 6000)
ALONE = (20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000)
PHASES = ("train", "predict", "distill", "evaluate", "server")
Rows = dict[int, dict[str, float]]


def samples(number: int, seed: int) -> LabeledDataset:
    """Return random images and labels."""
    generator = torch.Generator().manual_seed(seed)
    images = torch.randint(0, 256, (number, 1, SIZE, SIZE), dtype=torch.uint8, generator=generator)
    return LabeledDataset(images, torch.randint(0, CLASSES, (number,), generator=generator))


def a_round(clients: int, public: int) -> dict[str, float]:
    """Return the seconds of each phase of the second round, for which workers and modules already exist."""
    fed = Federation(
        tuple(Client(n, "lenet", samples(PRIVATE, n), samples(0, n), samples(TEST, n)) for n in range(clients)),
        samples(public, 0).inputs,
        public_batch_size=public,
        classes=CLASSES,
        build=partial(models.build, shape=(1, SIZE, SIZE), classes=CLASSES),
        training=LocalTraining(epochs=1, batch_size=50),
        distillation=Distillation(epochs=1, batch_size=100),
        compute=Compute("cpu", executor=ExecutorSettings("auto")),
    )
    run = engine.run(methods.create("kt_pfl"), fed, engine.Schedule(rounds=2))
    fed.executor.close()
    return {phase: run.history[-1].seconds[phase] for phase in PHASES}


def server(clients: int) -> dict[str, float]:
    """Return the seconds of the server's two steps."""
    logits = torch.randn(clients, 300, CLASSES, generator=torch.Generator().manual_seed(0)) * 3
    soft, c = soft_predictions(logits), uniform(clients)
    objective = Divergence(soft.log(), torch.ones(clients, dtype=torch.float64), 0.7)
    repetitions = 5 if clients <= 500 else 1
    mixture = min(measure.seconds_of(lambda: mix_teachers(c, soft)) for _ in range(repetitions))
    return {
        "mixture": mixture,
        "matrix": min(measure.seconds_of(lambda: eg(objective, c, 0.5, 1)) for _ in range(repetitions)),
    }


def slope(rows: Rows, part: str) -> float:
    """Return the exponent of the growth between the second largest and the largest size."""
    (small, before), (large, after) = list(rows.items())[-2:]
    return math.log(after[part] / before[part]) / math.log(large / small)


def table(title: str, size: str, rows: Rows) -> list[str]:
    """Return the rows as a Markdown table with the exponents below."""
    parts = list(next(iter(rows.values())))
    return [
        *(f"## {title}", "", f"| {size} | {' | '.join(parts)} |", "| --- " * (len(parts) + 1) + "|"),
        *(f"| {n:,} | {' | '.join(f'{found[part]:.3f}' for part in parts)} |" for n, found in rows.items()),
        f"| exponent | {' | '.join(f'{slope(rows, part):.2f}' for part in parts)} |",
        "",
    ]


def figure(panels: list[tuple[str, str, Rows]]) -> Figure:
    """Return a figure of all three growths, on logarithmic axes, with lines of slopes one and two for comparison."""
    drawn = Figure(figsize=(11, 3.8), dpi=150, layout="constrained")
    for axes, (title, size, rows) in zip(drawn.subplots(1, 3), panels, strict=True):
        sizes = list(rows)
        for part, marker in zip(next(iter(rows.values())), "osD^v", strict=False):
            axes.loglog(sizes, [rows[n][part] for n in sizes], marker=marker, markersize=4, label=part)
        low, high = axes.get_ylim()
        for power, style in ((1, ":"), (2, "--")):
            line = [high * (n / sizes[-1]) ** power for n in sizes]
            axes.loglog(sizes, line, style, color="#98a2b3", linewidth=1, label=f"slope {power}")
        axes.set(title=title, xlabel=size, ylabel="seconds", ylim=(low, high * 1.5))
        axes.minorticks_off()
        axes.set_xticks(sizes, [f"{n:,}" for n in sizes], rotation=60)
        axes.grid(color="#e4e7ec")
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)
    handles = {
        label: handle for axes in drawn.axes for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)
    }
    drawn.legend(handles.values(), handles, loc="outside right upper", frameon=False)
    return drawn


def main() -> None:
    """Measure, and write the table and the figure."""
    torch.set_num_threads(1)
    panels: list[tuple[str, str, Rows]] = [
        ("A round, by clients", "N", {n: a_round(n, 300) for n in CLIENTS}),
        ("A round, by public images", "|D_r|", {b: a_round(20, b) for b in PUBLIC}),
        ("The server alone", "N", {n: server(n) for n in ALONE}),
    ]
    lines = [
        f"# What a round of KT-pFL costs, {measure.today()}",
        "",
        f"{measure.hardware()}; {resources.default_workers()} workers; seconds.",
        "The exponent is that between the last two sizes: 1 is linear, 2 quadratic.",
        "",
        f"![Growth]({measure.today()}-scaling.png)",
        "",
    ]
    for panel in panels:
        lines += table(*panel)
    figure(panels).savefig(measure.RESULTS / f"{measure.today()}-scaling.png")
    print("\n".join(lines))
    measure.write("scaling", lines[:-1])


if __name__ == "__main__":
    main()
