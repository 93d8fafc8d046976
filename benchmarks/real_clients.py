"""Five methods on five clients with digits, each a process of its own, beside the same federation in one process.

Is it the same, bit for bit? What does the ledger say, what do the messages take, what does a socket between client and
SuperLink carry? Is a private image, a vector of labels or a model in what clients send? Run it in the environment of
`make flower`: ``.venv-flower/bin/python benchmarks/real_clients.py [--tls] [method ...]``.
"""

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import measure
import torch
import yaml

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))
import leaks
import loopback
from real_clients import COMPARED, deal_out, in_one_process
from tapped import Tap

from ktpfl_pipeline import methods

MIXED, ALIKE = ("mlp", "cnn_bn", "lenet", "mlp", "cnn"), ("mlp",) * 5
METHODS = {"kt_pfl": MIXED, "fedmd": MIXED, "fedproto": MIXED, "feddf": MIXED, "fedavg": ALIKE}
ROUNDS = 2
LEDGER = ("knowledge_up", "knowledge_down", "parameters_up", "parameters_down", "public_down")
HEAD = """
kB of two rounds, up and down, all clients together. *Ledger*: what the method's numbers take, as in every run's
report. *Messages*: what the server put into messages and found in them, with names and settings, evaluations, and the
public set before the first round. *Socket*: what went through the ports between clients and SuperLink; *asking* is
the part of it that only asked for messages, twice a second, or said that a client lives. The last columns are found
/ looked for, in all that clients sent: pieces of each private image and of the labels, in bytes and floats, raw and
scaled; pieces of each model that a client ever had; pieces of predictions or prototypes that it was asked for.

| method | same as in one process | ledger | messages | socket | asking | private | models | knowledge |
| --- | --- | --- | --- | --- | --- | --- | --- | --- |"""


def main() -> None:
    """Write a table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("methods", nargs="*", default=list(METHODS))
    parser.add_argument("--tls", action="store_true", help="with TLS and keys; nothing can be searched then")
    asked = parser.parse_args()
    rows = []
    for kind in (MIXED, ALIKE):
        if chosen := [method for method in asked.methods if METHODS[method] == kind]:
            rows += compared(chosen, kind, asked.tls)
    title = f"# Real clients{' with TLS' * asked.tls}, {measure.today()}"
    lines = [title, "", f"{measure.hardware()}, flwr 1.41, loopback.", *HEAD.splitlines(), *rows]
    measure.write(f"real-clients{'-tls' * asked.tls}", lines)


def compared(chosen: list[str], architectures: tuple[str, ...], tls: bool) -> list[str]:
    """Return the rows of some methods, whose clients stay the same processes."""
    with tempfile.TemporaryDirectory() as place:
        folder, taps = Path(place), list[Tap]()
        files = deal_out(folder, chosen[0], architectures, ROUNDS, image={"channels": 1, "size": 28})
        for file in files:
            file.write_text(file.read_text() + "image: {channels: 1, size: 28}\n")
        with loopback.federation(folder, files, taps, secure=tls, pulse=0.5) as link:
            rows = []
            for method in chosen:
                rows.append(row(folder, link, method, taps, tls))
                print(rows[-1], flush=True)
        return rows


def row(folder: Path, link: str, method: str, taps: list[Tap], tls: bool) -> str:
    """Return the table's row of a method."""
    file = folder / "federation.yml"
    file.write_text(yaml.safe_dump({**yaml.safe_load(file.read_text()), "method": method, "results": method}))
    models = sorted(folder.glob("kept/*/model.pt"))
    for model in models:
        model.unlink()
    for tap in taps:
        tap.forget()
    log = loopback.run(folder, link, 1200)
    try:
        loopback.wait_for(lambda: len([*folder.glob("kept/*/model.pt")]) == len(taps), 60)
    except TimeoutError:
        return f"| `{method}` | {log[-2000:]} |"
    found: dict[str, Any] = json.loads((folder / method / "history.json").read_text())
    watching = leaks.Watching()
    here, fed = in_one_process(folder, watching)
    ledger = sum(sum(record["traffic"].get(name, [])) for record in found["history"] for name in LEDGER)
    numbers = [ledger, sum(sum(way.values()) for way in found["wire"].values()), sum(tap.nbytes() for tap in taps)]
    cells = [same(folder, method, here, fed, found), *(f"{number / 1000:,.0f}" for number in numbers)]
    if tls:
        return f"| `{method}` | {' | '.join(cells)} | | | | |"
    sent = [tap.sent() for tap in taps]
    private = [leaks.private((client.train, client.validation, client.test)) for client in fed.clients]
    looked = (private, list(watching.models.values()), [watching.knowledge[n] for n in fed.by_id])
    cells.append(f"{sum(tap.asking() for tap in taps) / 1000:,.0f}")
    for pieces in looked:
        hits = sum(leaks.held(said, own) for said, own in zip(sent, pieces, strict=True))
        cells.append(f"{hits:,} / {sum(len({*own}) for own in pieces):,}")
    return f"| `{method}` | {' | '.join(cells)} |"


def same(folder: Path, method: str, here: Any, fed: Any, found: dict[str, Any]) -> str:
    """Return in words whether history, matrix and models are those of one process, bit for bit."""
    pairs = list(zip(here.history, found["history"], strict=True))
    equal = {"history": all(getattr(ours, name) == theirs[name] for ours, theirs in pairs for name in COMPARED)}
    if here.coefficients is not None:
        written = json.loads((folder / method / "coefficients.json").read_text())
        equal["matrix"] = written == here.coefficients[-1].tolist()
    own = methods.create(method).personal(here.state, fed.by_id, fed)
    kept = {n: torch.load(folder / "kept" / f"client-{n}" / "model.pt", weights_only=True) for n in own}
    equal["models"] = all(torch.equal(kept[n][name], params[name]) for n, params in own.items() for name in params)
    return ", ".join(f"{what}{'' if yes else ': no'}" for what, yes in equal.items())


if __name__ == "__main__":
    main()
