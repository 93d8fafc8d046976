"""The server's gradient: two matrix products against autograd and against loops over clients, in one run.

    python benchmarks/server.py            prints a table and writes it to benchmarks/results/<date>-server.md
    python benchmarks/server.py 10000      one update of the matrix of 10,000 clients, and its peak memory

Every way computes the same gradient (checked here to 1e-9); times are medians over repetitions, taken in turn.
"""

import resource
import statistics
import sys

import measure
import torch
import torch.nn.functional as F
from torch import Tensor

from ktpfl_pipeline.core.matrix.blocks import uniform
from ktpfl_pipeline.core.matrix.objectives import Divergence
from ktpfl_pipeline.core.matrix.teachers import mix_teachers, soft_predictions
from ktpfl_pipeline.core.matrix.updates import eg, project

PUBLIC, CLASSES, RHO = 3000, 10, 0.7  # the paper's |D_r|, ten classes
REPETITIONS = 5


def closed_form(c: Tensor, soft: Tensor, weights: Tensor) -> Tensor:
    """Return the gradient by the project's closed form."""
    return Divergence(soft.log(), weights, RHO).gradient(c)


def autograd(c: Tensor, soft: Tensor, weights: Tensor) -> Tensor:
    """Return the gradient by differentiating the objective of all rows at once."""
    variable = c.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(Divergence(soft.log(), weights, RHO).value(variable).sum(), variable)
    return gradient


def loops(c: Tensor, soft: Tensor, weights: Tensor) -> Tensor:
    """Return the gradient one student at a time, with the teacher summed in a loop, as in usual implementations."""
    rows = []
    for n in range(len(c)):
        row = c[n].clone().requires_grad_()
        teacher = torch.zeros_like(soft[n])
        for m in range(len(c)):
            teacher = teacher + row[m] * soft[m]
        divergence = F.kl_div(soft[n].log(), teacher, reduction="batchmean")
        loss = weights[n] * divergence + RHO * (row - 1.0 / len(c)).square().sum()
        rows.append(torch.autograd.grad(loss, row)[0])
    return torch.stack(rows)


def row_of(n: int) -> str:
    """Return the table's row for n clients."""
    generator = torch.Generator().manual_seed(n)
    soft = soft_predictions(torch.randn(n, PUBLIC, CLASSES, generator=generator) * 3)
    weights = torch.ones(n, dtype=torch.float64)
    c = torch.rand(n, n, generator=generator, dtype=torch.float64)
    c = c / c.sum(dim=1, keepdim=True)
    ways = {
        "mix": lambda: mix_teachers(c, soft),
        "project": lambda: project(c - uniform(n)),
        "closed": lambda: closed_form(c, soft, weights),
        "autograd": lambda: autograd(c, soft, weights),
    }
    if n <= 100:
        ways["loops"] = lambda: loops(c, soft, weights)
        assert torch.allclose(loops(c, soft, weights), closed_form(c, soft, weights), atol=1e-9)
    assert torch.allclose(autograd(c, soft, weights), closed_form(c, soft, weights), atol=1e-9)
    times: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(REPETITIONS):
        for name, way in ways.items():
            times[name].append(measure.seconds_of(way))
    median = {name: 1000 * statistics.median(values) for name, values in times.items()}
    slow = f"{median['loops']:.0f} ({median['loops'] / median['closed']:.0f}×)" if "loops" in median else "–"
    return (
        f"| {n} | {median['mix']:.1f} | {median['closed']:.1f} | {median['autograd']:.1f} "
        f"({median['autograd'] / median['closed']:.1f}×) | {slow} | {median['project']:.2f} |"
    )


def large(n: int) -> str:
    """Return the time and the peak memory of one step of the matrix of n clients, for which memory is limited."""
    soft = torch.empty(n, PUBLIC, CLASSES, dtype=torch.float64)
    generator = torch.Generator().manual_seed(0)
    for row in range(n):
        soft[row] = soft_predictions(torch.randn(PUBLIC, CLASSES, generator=generator) * 3)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9
    objective = Divergence(soft.log(), torch.ones(n, dtype=torch.float64), RHO)
    taken = measure.seconds_of(lambda: eg(objective, uniform(n), 0.5, 1))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9
    rate = 4 * n * n * PUBLIC * CLASSES / taken / 1e9
    return (
        f"N = {n:,}: one step of `eg` takes {taken:.0f} s ({rate:.0f} GFLOP/s); peak {peak:.2f} GB, {before:.2f} before"
    )


def main() -> None:
    """Print the table, and write it to a file."""
    torch.set_num_threads(1)
    if len(sys.argv) > 1:
        print(large(int(sys.argv[1])))
        return
    lines = [
        f"# The server, {measure.today()}",
        "",
        f"{measure.hardware()}, 1 thread; float64, {PUBLIC} × {CLASSES} predictions;",
        f"milliseconds, medians of {REPETITIONS}, in brackets the ratio to the closed form.",
        "",
        "| N | mixture | gradient, closed form | gradient, autograd | gradient, loops | projection |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for n in (20, 50, 100, 200):
        lines.append(row_of(n))
        print(lines[-1], flush=True)
    measure.write("server", lines)


if __name__ == "__main__":
    main()
