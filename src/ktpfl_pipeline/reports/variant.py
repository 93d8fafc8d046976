"""The variant of a comparison: a folder name for its data and settings. Each variant has a separate report."""

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
"""The setting that describes a partition, by scheme."""
LONGEST = 200
"""The most bytes of a folder name. Systems allow 255; MLflow and unfinished reports add a few to the name."""
SHOWN = 40
"""The most bytes of a source in a name that would otherwise be too long."""


def variant(settings: dict[str, Any], native: Sequence[int] = (), shape: Sequence[int] = ()) -> str:
    """Return a name for the data of a comparison: ``digits-8x8x1_to_28x28x1-20_clients-dirichlet-0.3-open_part``.

    Settings that differ from the defaults follow, as in ``...-open_part-0.1-flipped-0.1-tuned``. Unknown parts are left
    out. `native` is the shape of a private input in its source, or empty if the source has several shapes. `shape` is
    the input shape of the models. If the name is longer than `LONGEST`, sources are named only by their files.
    """
    whole = _named(settings, native, shape, LONGEST)
    if len(whole.encode()) <= LONGEST:
        return whole
    short = _named(settings, native, shape, SHOWN).encode()
    end = f"-{digest(whole)[:6]}"
    return short.decode() if len(short) <= LONGEST else short[: LONGEST - len(end)].decode(errors="ignore") + end


def _named(settings: dict[str, Any], native: Sequence[int], shape: Sequence[int], most: int) -> str:
    """Return the name of `variant`. A source with more than `most` bytes is named by its file and a hash."""
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
    """Return a source in characters allowed in folder names, with a hash if another source could have the same name."""
    source = str(settings.get("source", ""))
    shown = source
    if len(source.encode()) > most:
        shown = f"{source.partition(':')[0]}_{re.split('[/:]', source.rstrip('/'))[-1]}"
        shown = shown.encode()[-most:].decode(errors="ignore")
    plain_letters = re.fullmatch(r"[\w.-]*:?[\w.-]*", source)
    return source if plain_letters and shown == source else f"{shown}-{digest(source)[:6]}"


def _sides(shape: Sequence[int]) -> str:
    """Return a shape as text, with the channels of images last: ``28x28x1``, ``9x128``."""
    return "x".join(map(str, [*shape[1:], shape[0]] if len(shape) == 3 else shape))


def asked(partition: dict[str, Any]) -> list[str]:
    """Return a partition and its settings: ``dirichlet``, ``0.3``, ``balanced``, ``rotation``."""
    scheme, skew = partition.get("scheme", ""), partition.get("feature_skew", "none")
    balanced = "balanced" if scheme == "dirichlet" and partition.get("balanced") else ""
    found = [scheme, partition.get(PARAMETERS.get(scheme, ""), ""), balanced, "" if skew == "none" else skew]
    return [str(part) for part in found if part != ""]
