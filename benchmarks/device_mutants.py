"""Checks with mutants of the source that tests on the emulated GPU find faults that would fail on a real GPU.

    python benchmarks/device_mutants.py

Each of `MUTANTS` changes one place in a copy of the source, in which its part of `tests/devices` must fail. The script
prints a Markdown table with the failed tests, and ends with 1 if the tests pass with a mutant. It takes about ten
minutes.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
CLIENT = "core/client"
PRODUCTS = "test_operations.py -k products_are"
RUN = "test_methods.py::test_a_run_there_equals_one_on_the_cpu[kt_pfl-serial-float32]"
BEGINNING = "test_operations.py -k begins_in"
BUDGET = "test_operations.py::test_a_step_launches_no_more_than_its_budget[mlp]"
PHASES = "test_waits.py -k test_a_phase_waits"
CHECKPOINTS = "test_runs.py -k checkpoint"

MUTANTS = [
    (
        "an index left on the CPU",
        f"{CLIENT}/sgd.py",
        "order if device is None else sent(order, device)",
        "order",
        RUN,
    ),
    (
        "labels left on the CPU",
        f"{CLIENT}/workspace.py",
        "sent(samples.labels, self.device)",
        "samples.labels",
        PHASES,
    ),
    (
        "a teacher left on the CPU",
        f"{CLIENT}/operations.py",
        "teacher.to(space.device, space.dtype)",
        "teacher.cpu().to(space.dtype)",
        PHASES,
    ),
    ("the device's generator not seeded", "core/rng.py", "torch.cuda.manual_seed(seed)", "pass", RUN),
    (
        "dropout drawn from the global generator",
        f"{CLIENT}/private.py",
        '"dropout", *self._names), self._space.device)',
        '"dropout", *self._names))',
        RUN,
    ),
    (
        "noise from a generator of the CPU",
        f"{CLIENT}/dp_sgd.py",
        "torch.Generator(space.device)",
        "torch.Generator()",
        "test_runs.py -k private",
    ),
    (
        "false predictions drawn on the device",
        "core/adversaries.py",
        "torch.randn(logits.shape, generator=stream)",
        "torch.randn(logits.shape, generator=stream, device=logits.device)",
        "test_runs.py -k adversaries",
    ),
    (
        "autocast of the other device",
        f"{CLIENT}/reduced.py",
        "torch.autocast(device, torch.bfloat16)",
        'torch.autocast("cpu", torch.bfloat16)',
        PRODUCTS,
    ),
    ("TF32 left on", "core/setting.py", 'dtype == "tf32" else "ieee"', 'dtype == "tf32" else "tf32"', PRODUCTS),
    (
        "TF32 of convolutions never set",
        "core/setting.py",
        "(torch.backends.cuda.matmul, cudnn.conv, cudnn.rnn)",
        "(torch.backends.cuda.matmul, cudnn.rnn)",
        PRODUCTS,
    ),
    ("the precision of the run before", "core/engine.py", "    fed.claim()", "    fed.device", BEGINNING),
    (
        "a wait in each step",
        f"{CLIENT}/sgd.py",
        "total += value * len(batch)",
        "total += float(value) * len(batch)",
        RUN,
    ),
    (
        "a copy in each step",
        f"{CLIENT}/sgd.py",
        "return list(torch.split(order if device is None else sent(order, device), batch_sizes(samples, size)))",
        "return [sent(part, device or part.device) for part in torch.split(order, batch_sizes(samples, size))]",
        BUDGET,
    ),
    ("copies that block", "core/transfer.py", "non_blocking=True", "non_blocking=False", PHASES),
    (
        "a launch for each parameter",
        f"{CLIENT}/sgd.py",
        "torch._foreach_sub_([*parameters], [*gradients], alpha=learning_rate)",
        "[p.sub_(g, alpha=learning_rate) for p, g in zip(parameters, gradients, strict=True)]",
        BUDGET,
    ),
    (
        "a checkpoint without map_location",
        "core/rounds/checkpoint.py",
        "map_location=device",
        "map_location=None",
        CHECKPOINTS,
    ),
    (
        "a checkpoint that stays on the CPU",
        "core/rounds/checkpoint.py",
        "map_location=device",
        'map_location="cpu"',
        CHECKPOINTS,
    ),
]


def killer(folder: str, tests: str) -> str:
    """Return the first of these tests that fails with the source in `folder`; nothing if all pass."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "--tb=no", "-p", "no:cacheprovider", "-rfE"]
    command += f"tests/devices/{tests}".split(" ")
    environment = {**os.environ, "PYTHONPATH": folder, "PYTHONDONTWRITEBYTECODE": "1"}
    found = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    failed = re.search(r"^(?:FAILED|ERROR) \S*?::(\S+)", found.stdout, re.MULTILINE)
    if found.returncode not in (0, 1):
        sys.exit(f"{' '.join(command)} ends with {found.returncode}:\n{found.stdout[-2000:]}")
    return failed[1] if failed else ""


def main() -> None:
    """Try every mutant, and print a row for each."""
    alive = 0
    print("| mutant | in | killed by |\n|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "ktpfl_pipeline"
        shutil.copytree(ROOT / "src" / "ktpfl_pipeline", source, ignore=shutil.ignore_patterns("__pycache__"))
        for what, path, right, wrong, tests in MUTANTS:
            file = source / path
            content = file.read_text()
            if content.count(right) != 1:
                sys.exit(f"{path} has {right!r} {content.count(right)} times; correct MUTANTS.")
            file.write_text(content.replace(right, wrong))
            by = killer(folder, tests)
            file.write_text(content)
            alive += not by
            print(f"| {what} | `{path}` | {f'`{by}`' if by else '**nothing**'} |", flush=True)
    print(f"\n{len(MUTANTS)} mutants, {alive} alive")
    sys.exit(alive > 0)


if __name__ == "__main__":
    main()
