"""Kernel launches of a step by architecture, and synchronizations of a round by method, at two commits.

    python benchmarks/launches.py <commit>     427c8e8 or later, because tests/support must be able to import it

The counts come from an emulated GPU. A launch is an operation that torch sends to a device to compute. An operation on
many tensors (foreach) is one launch; views and allocations are none. The kernels that a library launches for an
operation are not counted. A wait is a number that the host reads from the device, or a blocking copy to the device. The
script prints two Markdown tables with the commit and the working tree, in about three minutes.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
ARCHITECTURES = ("lenet", "alexnet", "resnet18", "shufflenet_v2", "mcmahan_cnn", "mlp", "cnn", "cnn_bn")


def launches(architecture: str, **compute: Any) -> int:
    """Return the launches of one step of a client's local training, inside the context of the emulated GPU."""
    import pretend
    import torch

    from ktpfl_pipeline.core.dataset import LabeledDataset
    from ktpfl_pipeline.core.executors.serial import SerialExecutor
    from ktpfl_pipeline.core.federation import Federation
    from ktpfl_pipeline.core.setting import Client
    from ktpfl_pipeline.core.settings import Compute, LocalTraining
    from ktpfl_pipeline.models import build

    def empty(name: str) -> torch.nn.Module:
        """Return a model of zeros, because drawing weights would take most of the time."""
        with torch.device("meta"):
            module = build(name, (3, 32, 32), 4)
        module = module.to_empty(device="cpu")
        for tensor in module.state_dict().values():
            tensor.zero_()
        return module

    samples = LabeledDataset(torch.zeros(4, 3, 32, 32, dtype=torch.uint8), torch.arange(4))
    fed = Federation(
        clients=(Client(0, architecture, samples, samples, samples),),
        public=samples.inputs,
        public_batch_size=1,
        classes=4,
        build=empty,
        training=LocalTraining(epochs=1, batch_size=4),
        compute=Compute(pretend.DEVICE, **compute),
        executor=SerialExecutor(),
    )
    models, counted = fed.initial_models(), []
    for batch_size in (4, 4, 2):  # first data and modules are copied; then one step, then two
        object.__setattr__(fed, "training", LocalTraining(epochs=1, batch_size=batch_size))
        with pretend.recorded() as seen:
            fed.train(models, 1)
        counted.append(seen.launches)
    return int(counted[2] - counted[1])


def waits(name: str) -> int:
    """Return the waits of a method's second round with five clients, without evaluation."""
    import devices
    import pretend

    fed, method = devices.federation(name, devices.GPU, dropout=True), devices.method_of(name)
    cohort = [client.id for client in fed.clients]
    state, _ = method.round(method.init(fed), cohort, 1, fed)
    with pretend.recorded() as seen:
        method.round(state, cohort, 2, fed)
    return int(seen.waits)


def counted() -> dict[str, dict[str, list[Any]]]:
    """Return the numbers of both tables for the imported source."""
    import pretend
    import torch

    from ktpfl_pipeline.methods import METHODS

    torch.set_num_threads(1)
    with pretend.gpu():
        steps = {
            name: [
                launches(name),
                launches(name, dtype="bfloat16", memory_format="channels_last"),
            ]
            for name in ARCHITECTURES
        }
    found: dict[str, list[Any]] = {}
    for name in METHODS:
        try:
            with pretend.gpu():
                found[name] = [waits(name)]
        except RuntimeError as error:
            found[name] = [f"ends: {str(error).partition(':')[0]}"]
    return {"steps": steps, "waits": found}


def at(tree: Path) -> dict[str, Any]:
    """Return `counted` with the source of `tree` and the emulated GPU of the working tree."""
    paths = [str(tree / "src"), str(ROOT / "tests" / "support"), str(ROOT / "benchmarks")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    command = [sys.executable, __file__, "--here"]
    answer = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE).stdout
    found: dict[str, Any] = json.loads(answer)
    return found


def main() -> None:
    """Count with the source of the commit and of the working tree, and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("commit", nargs="?", default="HEAD", help="what the working tree is compared with")
    parser.add_argument("--here", action="store_true", help="print the numbers of the imported source")
    given = parser.parse_args()
    if given.here:
        print(json.dumps(counted()))
        return
    with tempfile.TemporaryDirectory() as folder:
        git = ["git", "-C", str(ROOT), "worktree"]
        subprocess.run([*git, "add", "--quiet", "--detach", f"{folder}/earlier", given.commit], check=True)
        try:
            before, after = at(Path(folder) / "earlier"), at(ROOT)
        finally:
            subprocess.run([*git, "remove", "--force", f"{folder}/earlier"], check=True)
    print("| launches a step | float32 | bfloat16, channels last |\n|---|---|---|")
    for name, then in before["steps"].items():
        now = after["steps"][name]
        print(f"| {name} |", " | ".join(f"{a:g} → {b:g}" for a, b in zip(then, now, strict=True)), "|")
    print("\n| waits a round, of five clients | before | after |\n|---|---|---|")
    for name, (number,) in after["waits"].items():
        print(f"| {name} | {before['waits'].get(name, ['-'])[0]} | {number} |")


if __name__ == "__main__":
    main()
