"""All settings that the KT-pFL paper or its released code states, next to the settings of an experiment.

The stated settings are in ``stated.yml``. Settings that the paper states decide whether its numbers belong to the same
setting as ours. Settings that only the released code shows are compared too, and their source names the code.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path, PurePath
from typing import Any

import yaml

from ktpfl_pipeline import methods
from ktpfl_pipeline.analysis.study import Cell
from ktpfl_pipeline.core import architectures
from ktpfl_pipeline.core.errors import plural
from ktpfl_pipeline.core.identity import flat
from ktpfl_pipeline.core.method import FineTuned
from ktpfl_pipeline.data.settings import Partition
from ktpfl_pipeline.reports import words
from ktpfl_pipeline.reports.paper.tables import OF_KT_PFL

DATASETS = {"emnist": "EMNIST", "fashion_mnist": "Fashion-MNIST", "cifar10": "CIFAR-10"}
CODE = "released code"
AVERAGED = {"feddf": "averaged", "pfeddf": "averaged", "feddf_soft": "left out", "pfeddf_soft": "left out"}
"""The treatment of parameters in the different readings of FedDF."""


@dataclass(frozen=True)
class Setting:
    """One stated setting next to our setting."""

    name: str
    paper: str  # the value of the paper or its code
    source: str  # where this is stated
    ours: str  # the value of the experiment
    differs: bool | None  # None if the paper states no value


@dataclass(frozen=True)
class Stated:
    """A rule of ``stated.yml``. That file explains the parts of a rule."""

    setting: str
    source: str
    paper: Any = None
    key: str = ""
    of: tuple[str, ...] = ()
    column: str = ""
    shown: str = ""

    def beside(self, ours: Any, label: str) -> Setting:
        """Return the stated setting next to our value `ours`, in a column with this label."""
        varied, _, value = label.partition(" = ")
        paper = yaml.safe_load(value) if self.column and varied == self.column else self.paper
        agreeing = paper if isinstance(paper, list) else [paper]
        found = family_of(ours) if self.key.endswith(".source") else ours
        shown = self.shown or (" or ".join(map(str, agreeing)) if paper is not None else "not stated")
        differs = None if paper is None else found not in agreeing
        return Setting(self.setting, shown, self.source, words.setting(ours), differs)


@cache
def rules() -> tuple[Stated, ...]:
    """Return all rules, in their order."""
    text = Path(__file__).with_name("stated.yml").read_text(encoding="utf-8")
    return tuple(Stated(**entry) for entry in yaml.safe_load(text))


def compared(cell: Cell) -> list[Setting]:
    """Return every stated setting that applies to a cell of the paper's tables, next to the cell's setting.

    Missing settings are not compared. A cell without a part belongs to Table 1 or, with one architecture, to Table 2. A
    cell without a method has only the settings that all methods share.
    """
    table = table_of(cell.part) or ("table2" if one_architecture(cell.settings) else "table1")
    ours = {**flat(cell.settings), **_further(cell, table)}
    kind = "one" if table in ("table2", "figure4") else "distilled"
    family, clients = family_of(str(ours.get("private.source"))), f"{cell.settings.get('clients')} clients"
    is_of = {table, kind, "study" if table in OF_KT_PFL else "", family, cell.label, clients}
    found: dict[str, Setting] = {}
    for rule in rules():
        key = rule.key or rule.setting
        if rule.setting not in found and key in ours and is_of.issuperset(rule.of):
            found[rule.setting] = rule.beside(ours[key], cell.label)
    return list(found.values())


def _further(cell: Cell, table: str) -> dict[str, Any]:
    """Return the settings of a cell that its configuration does not state in the paper's terms."""
    settings, method, samples = cell.settings, cell.method, cell.samples
    ours, found = flat(settings), {f"methods.{method}.{name}": value for name, value in cell.hyperparameters.items()}
    source = str(ours.get("private.source"))
    found["private.source"], found["partition.scheme"] = source, str(ours.get("partition.scheme"))  # also if missing
    if source.startswith("npz:"):
        found["private images"] = f"of the file {source}"
    if (classes := ours.get("private.classes")) is not None:
        found["classes"] = len(classes)
    if samples is not None:
        found["samples drawn"] = "without"
    if samples is not None and family_of(source) in DATASETS:
        found["samples per client"] = round(samples)
    elif (limit := ours.get("private.samples")) is not None:
        found["private samples"] = limit
    if (skew := ours.get("partition.feature_skew", "none")) != "none":
        found["feature skew"] = skew
    scheme, test, validation = (ours.get(f"partition.{name}") for name in ("scheme", "test_share", "validation_share"))
    lognormal = f"lognormal(0, {ours.get('partition.sigma', Partition.sigma):g})"
    found["amounts of each class"] = lognormal if scheme == "lognormal" else f"by {scheme}"
    if test is not None and validation is not None:
        found["share to train on"] = f"{100 * (1 - test) * (1 - validation):.3g} %"
    if (public := ours.get("public.source")) is not None:
        opened = ours.get("public.share", 0.0) if public == "open_part" else 0.0
        found["unused public part"] = f"{100 * opened:g} %" if opened else "none"
    found["clients"] = settings.get("clients") or "all"
    found["networks"] = _networks(settings)
    if method in AVERAGED and table != "figure5":
        found["FedDF's parameters"] = AVERAGED[method]
    preset = methods.known(method)
    if preset and issubclass(preset.kind, FineTuned) and cell.hyperparameters:
        found["fine-tuning"] = plural(cell.hyperparameters.get("epochs") or ours["training.epochs"], "epoch")
    if seeds := ours.get("seeds"):
        found["runs of a cell"] = "multiple" if len(seeds) > 1 else "1"
    return found


def _networks(settings: Mapping[str, Any]) -> str:
    """Return the clients' architectures, and whether there are several in unequal numbers."""
    models = settings.get("architectures") or []
    if isinstance(models, dict):
        clients = settings.get("clients")
        models = list(architectures.dealt(models, range(clients)).values()) if clients else architectures.names(models)
    counts = Counter(models)
    return (", ".join(sorted(counts)) or "None") + " in unequal numbers" * (len(set(counts.values())) > 1)


def one_architecture(settings: Mapping[str, Any]) -> bool:
    """Return whether all clients have one architecture, as in Table 2."""
    return len(architectures.names(settings.get("architectures") or [])) == 1


def table_of(part: str) -> str:
    """Return the paper's table or figure to which a part is compared: ``table1`` for ``table1_rate``."""
    return part.partition("_")[0]


def family_of(source: str) -> str:
    """Return the dataset of a source: ``emnist`` for ``emnist:letters`` and for ``npz:images/emnist.npz``."""
    kind, _, name = source.partition(":")
    return PurePath(name).stem if kind == "npz" else kind
