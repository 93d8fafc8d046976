"""What a comparison is of, as the name of its folder: comparisons that differ in it have reports side by side."""

import re
from collections.abc import Sequence
from typing import Any

from ktpfl_pipeline.core.identity import digest
from ktpfl_pipeline.reports.words import lean, unreliable

PARAMETERS = {
    **{"dirichlet": "alpha", "quantity": "alpha"},
    **{"k_labels": "labels_per_client", "shards": "shards_per_client"},
    "lognormal": "sigma",
}
"""The setting that says what a partition is, where there is one."""
LONGEST = 200
"""Bytes of a folder's name: systems allow 255, and MLflow's run and a report that is being written add to the name."""
SHOWN = 40
"""Bytes of a source in a name that would be too long."""


def variant(settings: dict[str, Any], native: Sequence[int] = (), shape: Sequence[int] = ()) -> str:
    """Return a name for the data of a comparison: ``digits-8x8x1_to_28x28x1-20_clients-dirichlet-0.3-open_part``.

    Settings that are not the default follow, as in ``...-open_part-0.1-flipped-0.1-tuned``. What is not known is left
    out. `native` is the shape of a private input in its source, empty if there are several; `shape` is what models
    take. Where the name would be longer than `LONGEST`, sources are named by their file alone.
    """
    whole = _named(settings, native, shape, LONGEST)
    if len(whole.encode()) <= LONGEST:
        return whole
    short = _named(settings, native, shape, SHOWN).encode()
    end = f"-{digest(whole)[:6]}"
    return short.decode() if len(short) <= LONGEST else short[: LONGEST - len(end)].decode(errors="ignore") + end


def _named(settings: dict[str, Any], native: Sequence[int], shape: Sequence[int], most: int) -> str:
    """Return the name of `variant`; a source of more than `most` bytes is named by its file and a hash."""
    names = ("private", "partition", "public", "adversaries")
    private, partition, public, adversaries = (settings.get(group, {}) for group in names)
    clients = settings.get("clients", 0)
    parts = [_source(private, most), "_to_".join(dict.fromkeys(map(_sides, (native, shape)))).lstrip("_")]
    parts += [f"{clients or 'all'}_clients" if clients != 0 else "", *asked(partition), _source(public, most)]
    if settings.get("participation", 1) < 1:
        parts.append(str(settings["participation"]))
    if adversaries.get("share"):
        parts += [adversaries["kind"], str(adversaries["share"])]
    parts += [part for part, _ in (*unreliable(settings), *lean(settings))]
    if privacy := settings.get("training", {}).get("privacy"):
        parts.append("-".join(["private", *map(str, privacy.values())]))
    if settings.get("hyperparameters") == "tuned":
        parts.append("tuned")
    return re.sub(r"[^\w.-]+", "_", "-".join(filter(None, parts))).strip("._")


def _source(settings: dict[str, Any], most: int) -> str:
    """Return a source in letters that a folder may have, with a hash where another could have the same."""
    source = str(settings.get("source", ""))
    shown = source
    if len(source.encode()) > most:
        shown = f"{source.partition(':')[0]}_{re.split('[/:]', source.rstrip('/'))[-1]}"
        shown = shown.encode()[-most:].decode(errors="ignore")
    plain_letters = re.fullmatch(r"[\w.-]*:?[\w.-]*", source)
    return source if plain_letters and shown == source else f"{shown}-{digest(source)[:6]}"


def _sides(shape: Sequence[int]) -> str:
    """Return a shape in short, channels of images last: ``28x28x1``, ``9x128``."""
    return "x".join(map(str, [*shape[1:], shape[0]] if len(shape) == 3 else shape))


def asked(partition: dict[str, Any]) -> list[str]:
    """Return a partition with what it was asked for: ``dirichlet``, ``0.3``, ``balanced``, ``rotation``."""
    scheme, skew = partition.get("scheme", ""), partition.get("feature_skew", "none")
    balanced = "balanced" if scheme == "dirichlet" and partition.get("balanced") else ""
    found = [scheme, partition.get(PARAMETERS.get(scheme, ""), ""), balanced, "" if skew == "none" else skew]
    return [str(part) for part in found if part != ""]
