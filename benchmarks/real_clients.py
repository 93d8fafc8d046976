"""Bytes by the ledger and on the wire, and seconds a round, of five methods on five clients in processes of their own.

Run in the environment of `make flower`: ``.venv-flower/bin/python benchmarks/real_clients.py``. Each run is compared
with the one in a single process. It takes minutes: Flower's SuperNode looks for a message every three seconds.
"""

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import yaml

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))
import loopback
from real_clients import COMPARED, deal_out, in_one_process

MIXED, ALIKE = ("mlp", "cnn_bn", "lenet", "mlp", "cnn"), ("mlp",) * 5
METHODS = {"kt_pfl": MIXED, "fedmd": MIXED, "fedproto": MIXED, "feddf": MIXED, "fedavg": ALIKE}


def main() -> None:
    """Print a table."""
    print("| method | same as one process | ledger, kB | wire, kB | without the public set, kB | seconds a round |")
    print("| --- | --- | --- | --- | --- | --- |")
    for kind in (MIXED, ALIKE):
        methods = [method for method, architectures in METHODS.items() if architectures == kind]
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place)
            files = deal_out(folder, methods[0], kind, image={"channels": 1, "size": 28})
            for file in files:
                file.write_text(file.read_text() + "image: {channels: 1, size: 28}\n")
            with loopback.federation(folder, files) as link:
                for method in methods:
                    print(row(folder, link, method), flush=True)


def row(folder: Path, link: str, method: str) -> str:
    """Return the table's row of a method."""
    file = folder / "federation.yml"
    file.write_text(yaml.safe_dump({**yaml.safe_load(file.read_text()), "method": method}))
    log = loopback.run(folder, link, 600)
    result = folder / "results" / "history.json"
    if not result.exists():
        return f"| `{method}` | {log[-2000:]} |"
    found: dict[str, Any] = json.loads(result.read_text())
    result.unlink()
    here, fed = in_one_process(folder)
    pairs = list(zip(here.history, found["history"], strict=True))
    same = all(getattr(ours, name) == theirs[name] for ours, theirs in pairs for name in COMPARED)
    names = ("knowledge_up", "knowledge_down", "parameters_up", "parameters_down")
    ledger = sum(sum(record["traffic"][name]) for record in found["history"] for name in names)
    wire = sum(sum(way.values()) for way in found["wire"].values())
    public = len(fed.clients) * fed.public.nbytes
    seconds = found["history"][-1]["seconds"]["round"]
    numbers = " | ".join(f"{number / 1000:,.1f}" for number in (ledger, wire, wire - public))
    return f"| `{method}` | {'yes' if same else 'no'} | {numbers} | {seconds:.0f} |"


if __name__ == "__main__":
    main()
