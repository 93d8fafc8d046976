"""Five methods on five real clients with digits, in separate processes, against the same federation in one process.

The script checks that results are equal bit for bit. It reports the counted traffic, the bytes of messages, and the
bytes through the socket between client and SuperLink. It also searches the clients' messages for private images, label
vectors and models. Run it in the environment of `make flower`:
``.venv-flower/bin/python benchmarks/real_clients_bytes.py [--tls] [method ...]``.
"""

import argparse
import sys
import tempfile
from pathlib import Path

import measure
import yaml

sys.path.insert(0, str(Path(__file__).parents[1] / "flower" / "tests" / "support"))
import leaks
import loopback
from real_clients import check_same, deal_out
from tapped import Tap

METHODS = ("kt_pfl", "fedmd", "fedproto", "feddf", "fedavg")
CLIENTS, ROUNDS = 5, 2
HEAD = """
kB of two rounds, up and down, all clients together. *Ledger*: what the method's numbers take, as in every run's
report. *Messages*: what the server put into messages and found in them, with names and settings, evaluations, and the
public set before the first round. *Socket*: what went through the ports between clients and SuperLink; *asking* is
the part of it that only asked for messages, or said that a client lives. Most of the rest is Flower's
way to carry a message: each of its records and arrays is fetched by a request of its own, which takes 1.2 kB beside
what it carries, so that five to ten kB a message are there however small it is, and large models hide them. The last
columns are found / looked for, in all that clients sent: pieces of each private image and of the labels, in bytes and
floats, raw and scaled; pieces of each model that a client ever had; pieces of predictions or prototypes that it was
asked for.

| method | same as in one process | ledger | messages | socket | asking | private | models | knowledge |
| --- | --- | --- | --- | --- | --- | --- | --- | --- |"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("methods", nargs="*", default=METHODS)
    parser.add_argument("--tls", action="store_true", help="with TLS and keys; nothing can be searched then")
    asked = parser.parse_args()
    title = f"# Real clients{' with TLS' * asked.tls}, {measure.today()}"
    lines = [title, "", f"{measure.hardware()}, flwr 1.41, loopback.", *HEAD.splitlines()]
    with tempfile.TemporaryDirectory() as place:
        folder, taps = Path(place), list[Tap]()
        files = deal_out(folder, METHODS[0], ("mlp",) * CLIENTS, ROUNDS, deadline=1800)
        with loopback.federation(folder, files, taps, asked.tls):
            for method in asked.methods:
                lines.append(row(folder, method, taps, asked.tls))
                print(lines[-1], flush=True)
    measure.write(f"real-clients{'-tls' * asked.tls}", lines)


def row(folder: Path, method: str, taps: list[Tap], tls: bool) -> str:
    """Return the table's row of a method.

    Raises:
        AssertionError: if history, matrix or models differ from the run in one process.
    """
    file, watching = folder / "federation.yml", leaks.Watching()
    file.write_text(yaml.safe_dump({**yaml.safe_load(file.read_text()), "methods": [method]}))
    for tap in taps:
        tap.forget()
    loopback.run(folder, "here", 1800)
    done = loopback.finished(folder, method)
    asking, passed = sum(tap.asking() for tap in taps), sum(tap.nbytes() for tap in taps)
    sent = [tap.sent() for tap in taps]
    fed = check_same(folder, done, watching)
    ledger = sum(sum(values) for record in done.history for values in record.traffic.values())
    numbers = [ledger, sum(map(sum, done.wire.values())), passed]
    cells = ["history, matrix, models", *(f"{number / 1000:,.0f}" for number in numbers)]
    if tls:
        return f"| `{method}` | {' | '.join(cells)} | | | | |"
    private = [leaks.private((client.train, client.validation, client.test)) for client in fed.clients]
    cells.append(f"{asking / 1000:,.0f}")
    for pieces in (private, [watching.models[n] for n in fed.by_id], [watching.knowledge[n] for n in fed.by_id]):
        hits = sum(leaks.held(said, own) for said, own in zip(sent, pieces, strict=True))
        cells.append(f"{hits:,} / {sum(len({*own}) for own in pieces):,}")
    return f"| `{method}` | {' | '.join(cells)} |"


if __name__ == "__main__":
    main()
