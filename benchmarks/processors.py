"""Data, keys and numbers of this machine's processor and of two that it emulates.

    python benchmarks/processors.py [--data=FOLDER] [--rounds=8]

writes benchmarks/results/<date>-processors.md. Every experiment of `--env=test` whose files are in FOLDER prepares its
data and the key of KT-pFL's run, and every method is run on digits. Each processor has its own process, because
libraries choose their instructions when they are loaded.
"""

import argparse
import hashlib
import json
import logging
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from statistics import mean, median
from typing import Any

import measure
from kedro.config import OmegaConfigLoader

from ktpfl_pipeline import settings
from ktpfl_pipeline.config import parsing
from ktpfl_pipeline.config.schema import Experiment
from ktpfl_pipeline.core import engine
from ktpfl_pipeline.core.errors import InputError
from ktpfl_pipeline.core.identity import digest
from ktpfl_pipeline.methods import METHODS
from ktpfl_pipeline.runs.assembly import assemble
from ktpfl_pipeline.runs.identity import Job, identity
from ktpfl_pipeline.runs.preparation import prepare

PROCESSORS = {
    "this one": {},
    "AVX2": {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2", "MKL_CBWR": "AVX2"},
    "SSE4.1": {
        **{"ATEN_CPU_CAPABILITY": "default", "ONEDNN_MAX_CPU_ISA": "SSE41", "MKL_CBWR": "COMPATIBLE"},
        "GLIBC_TUNABLES": "glibc.cpu.hwcaps=-AVX2,-FMA,-AVX512F",  # exp and log of the C library
        "NPY_DISABLE_CPU_FEATURES": "X86_V3 X86_V4 AVX512_ICL AVX512_SPR",
        "OPENBLAS_CORETYPE": "Nehalem",  # of NumPy
        "JSIMD_FORCESSE2": "1",  # JPEG files
    },
}
"""The environment in which the libraries take the instructions of a processor."""
CLOSE = 0.5
"""Points of accuracy."""
ROOT = Path(__file__).parents[1]


def configured() -> dict[str, Experiment]:
    """Return the experiments of `--env=test`."""
    loader = OmegaConfigLoader(str(ROOT / "conf"), env="test", **settings.CONFIG_LOADER_ARGS)
    sections = parsing.merged(dict(loader["parameters"]), {})
    return {name: parsing.parse(name, sections[name]) for name in parsing.experiments(sections)}


def of_files(experiment: Experiment, folder: Path) -> Experiment:
    """Return an experiment that takes its images from files of `folder` instead of downloads."""

    def file(source: str) -> str:
        return f"npz:{source}.npz" if (folder / f"{source}.npz").exists() else source

    private, public = experiment.private, experiment.public
    return replace(
        experiment,
        private=replace(private, source=file(private.source)),
        public=replace(public, source=file(public.source)),
    )


def data_of(name: str, experiment: Experiment, folder: Path) -> dict[str, str]:
    """Return the fingerprint of the data of each seed, a hash of what models get, and the key of KT-pFL's run."""
    made = prepare(experiment, folder)
    job, found = Job(name, "kt_pfl", experiment, made), {}
    for seed, own in made.seeds.items():
        fed = assemble(experiment, made, seed)
        hashed = hashlib.sha256(fed.public.contiguous().numpy().tobytes())
        for client in fed.clients:
            for split in (client.train, client.validation, client.test):
                hashed.update(split.inputs.contiguous().numpy().tobytes())
        found[f"{name}, seed {seed}"] = f"{own.fingerprint} {hashed.hexdigest()[:16]} {digest(identity(job, seed))}"
    return found


def numbers_of(method: str, experiment: Experiment) -> dict[str, list[float]]:
    """Return the clients' final accuracies and training losses of a run with one seed, serial and with one thread."""
    fed = assemble(experiment, prepare(experiment, ROOT / "data/01_raw"), experiment.seeds[0])
    history = engine.run(parsing.method_of(experiment, method), fed, engine.Schedule(experiment.rounds)).history
    losses = {phase: values for record in history for phase, values in record.loss.items()}
    return {**history[-1].accuracy, **{f"loss {phase}": values for phase, values in losses.items()}}


def child(folder: Path, rounds: int) -> None:
    """Print the data and the numbers of this process's processor as JSON."""
    logging.disable(logging.WARNING)
    experiments, data = configured(), dict[str, str]()
    for name, experiment in experiments.items():
        skewed = {
            kind: replace(experiment, partition=replace(experiment.partition, feature_skew=kind))
            for kind in ("none", "noise", "rotation", "blur", "color")
        }
        for kind, each in skewed.items():
            try:
                data |= data_of(f"{name}, {kind}", of_files(each, folder), folder)
            except InputError:  # no such file, or no such skew of these inputs
                continue
    numbers = {}
    for method, preset in METHODS.items():
        section = "homo_digits" if preset.kind.one_architecture else "hetero_digits"
        experiment = replace(experiments[section], rounds=rounds, seeds=[0])
        numbers[method] = numbers_of(method, experiment)
        print(method, file=sys.stderr, flush=True)
    json.dump({"data": data, "numbers": numbers}, sys.stdout)


def apart(one: dict[str, list[float]], other: dict[str, list[float]]) -> tuple[float, float, float]:
    """Return the largest differences of a method's mean accuracy, of a client's accuracy, and of a loss, relative."""
    means, clients, losses = [0.0], [0.0], [0.0]
    for kind, values in one.items():
        gaps = [abs(a - b) for a, b in zip(values, other[kind], strict=True)]
        if kind.startswith("loss"):
            losses += [gap / max(abs(value), 1e-3) for gap, value in zip(gaps, values, strict=True)]
        else:
            means.append(100 * abs(mean(values) - mean(other[kind])))
            clients += [100 * gap for gap in gaps]
    return max(means), max(clients), max(losses)


def row(name: str, here: dict[str, Any], there: dict[str, Any]) -> str:
    """Return a row of the table: how many fingerprints and keys are equal, and how many methods' numbers are close."""
    equal = sum(there["data"][each] == here["data"][each] for each in here["data"])
    gaps = {method: apart(own, there["numbers"][method]) for method, own in here["numbers"].items()}
    same, close = (sum(gap[0] <= most for gap in gaps.values()) for most in (0.0, CLOSE))
    far = [f"`{method}` {gap[0]:.1f}" for method, gap in sorted(gaps.items(), key=lambda item: -item[1][0])]
    cells = [name, f"{equal} of {len(here['data'])}", f"{same} of {len(gaps)}", f"{close} of {len(gaps)}"]
    middle = [f"{median(gap[n] for gap in gaps.values()):.1g}" for n in (1, 2)]
    return f"| {' | '.join([*cells, *middle, ', '.join(far[: len(gaps) - close]) or 'none'])} |"


def main() -> None:
    """Compute in a process per processor, compare, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=ROOT / "data/01_raw", help="the folder of the files")
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        child(given.data, given.rounds)
        return
    command = [sys.executable, __file__, "--child", f"--data={given.data}", f"--rounds={given.rounds}"]
    found = {}
    for name, own in PROCESSORS.items():
        printed = subprocess.run(command, env={**os.environ, **own}, check=True, stdout=subprocess.PIPE).stdout
        found[name] = json.loads(printed)
    lines = [
        f"# Numbers on several processors, {measure.today()}",
        "",
        f"{measure.hardware()}, and processors that it emulates. Every method has one run of {given.rounds} rounds on",
        "digits with the settings of `--env=test`. A method is equal or close if its mean accuracies over the clients",
        f"are equal, or differ by at most {CLOSE} points. The columns of a client's accuracy, in points, and of its",
        "last loss, relative to it, have medians over the methods, of the client that differs most.",
        "",
        "| processor | equal data and keys | methods: equal | close | a client's accuracy | loss | others, points |",
        "| --- | --- | --- | --- | --- | --- | --- |",
        *(row(name, found["this one"], there) for name, there in found.items() if there is not found["this one"]),
    ]
    print("\n".join(lines))
    measure.write("processors", lines)


if __name__ == "__main__":
    main()
