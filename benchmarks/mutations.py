"""Checks with mutations of the source that the tests find wrong signs, wrong names and wrong means.

    python benchmarks/mutations.py

Each of `MUTATIONS` changes one line in a copy of the source, whose tests must then fail. The script ends with 1 if the
tests pass with a mutation. It takes about four minutes.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
OBJECTIVES = "core/matrix/objectives.py"
OBJECTIVE_TESTS = ["tests/core/matrix/test_objectives.py", "tests/methods/test_kt_pfl_params.py"]
STATISTICS = "analysis/statistics.py"

MUTATIONS = [
    # A sign in each objective and its gradient.
    (OBJECTIVES, "self.weights[rows] * divergence + penalty", "self.weights[rows] * divergence - penalty", 1),
    (OBJECTIVES, "self.weights[rows] * divergence +", "-self.weights[rows] * divergence +", 1),
    (OBJECTIVES, "clamp_min(SMALLEST).log() - self.log_soft", "clamp_min(SMALLEST).log() + self.log_soft", 1),
    (OBJECTIVES, "self.weights[rows, None] * products + 2.0", "self.weights[rows, None] * products - 2.0", 1),
    (OBJECTIVES, "= self.weights[rows, None] * products", "= -self.weights[rows, None] * products", 1),
    (OBJECTIVES, "mix_teachers(c, self.soft) - self.soft", "mix_teachers(c, self.soft) + self.soft", 1),
    (OBJECTIVES, "return error + self.rho", "return error - self.rho", 1),
    (OBJECTIVES, "(c @ gram - gram)", "(c @ gram + gram)", 1),
    (OBJECTIVES, "gram) + 2.0 * self.rho / len(c)", "gram) - 2.0 * self.rho / len(c)", 1),
    (OBJECTIVES, "c - torch.eye(", "c + torch.eye(", 1),
    (OBJECTIVES, "distance + self.rho", "distance - self.rho", 1),
    (OBJECTIVES, "c @ self.products - self.products", "c @ self.products + self.products", 1),
    (OBJECTIVES, "pull + 2.0", "pull - 2.0", 1),
    (OBJECTIVES, "-self.weights * likelihood", "self.weights * likelihood", 1),
    (OBJECTIVES, "likelihood + self.rho", "likelihood - self.rho", 1),
    (OBJECTIVES, "-self.weights[:, None] * share", "self.weights[:, None] * share", 1),
    (OBJECTIVES, "share + 2.0", "share - 2.0", 1),
    # The method that a message names.
    (
        "core/validation.py",
        'raise InputError(f"{where} is {written(given)}; it must be {rule}{example}.")',
        'raise InputError("zzz")',
        2,
    ),
    ("methods/__init__.py", ", where or name)", ', "zzz")', 2),
    ("methods/__init__.py", "entry.default is not MISSING}, name)", 'entry.default is not MISSING}, "zzz")', 2),
    # A mean over the wrong clients, seeds or rounds.
    (STATISTICS, "if place not in adversaries and", "if place in adversaries and", 3),
    (STATISTICS, "fmean(benign(values, adversaries))", "fmean(values)", 3),
    (STATISTICS, "sorted(clients)[: max(1, len(clients) // 10)]", "sorted(clients)[-max(1, len(clients) // 10) :]", 3),
]
TESTS = {1: OBJECTIVE_TESTS, 2: ["tests/methods/test_registry.py"], 3: ["tests/analysis"]}


def main() -> None:
    """Try every mutation, print a line for each, and count the mutations with which all tests pass."""
    missed = 0
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "ktpfl_pipeline"
        shutil.copytree(ROOT / "src" / "ktpfl_pipeline", source, ignore=shutil.ignore_patterns("__pycache__"))
        environment = {**os.environ, "PYTHONPATH": folder, "PYTHONDONTWRITEBYTECODE": "1"}
        for path, right, wrong, kind in MUTATIONS:
            file = source / path
            content = file.read_text()
            if content.count(right) != 1:
                sys.exit(f"{path} has {right!r} {content.count(right)} times; correct MUTATIONS.")
            file.write_text(content.replace(right, wrong))
            command = [sys.executable, "-m", "pytest", "-q", "-x", *TESTS[kind]]
            passed = (
                subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, check=False).returncode == 0
            )
            file.write_text(content)
            missed += passed
            print(f"{'MISSED ' if passed else 'noticed'} {path}: {wrong}", flush=True)
    print(f"{len(MUTATIONS)} mutations, {missed} missed")
    sys.exit(missed > 0)


if __name__ == "__main__":
    main()
