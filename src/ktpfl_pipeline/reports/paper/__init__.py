"""The KT-pFL paper's own numbers and settings, and where its numbers may be shown next to ours.

Zhang, Guo, Ma, Wang, Xu, Wu: Parameterized Knowledge Transfer for Personalized Federated Learning, NeurIPS 2021.
`tables` has all numbers of Tables 1 to 6. ``docs/how_to/paper.md`` lists the settings in which ours differ.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import PurePath
from typing import Any

from ktpfl_pipeline import methods
from ktpfl_pipeline.analysis.study import Cell
from ktpfl_pipeline.core import architectures
from ktpfl_pipeline.core.identity import flat
from ktpfl_pipeline.reports import words
from ktpfl_pipeline.reports.paper import tables
from ktpfl_pipeline.reports.paper.tables import Cited

DATASETS = {"emnist": "EMNIST", "fashion_mnist": "Fashion-MNIST", "cifar10": "CIFAR-10"}
STATED = """
private data                |                  | EMNIST; Fashion-MNIST; CIFAR-10
classes                     |                  | 10
private.samples             |                  | all
partition.feature_skew      |                  | none
partition.scheme            | one              | all_labels; lognormal
partition.scheme            |                  | two_labels; all_labels
partition.test_share        |                  | 0.25
unused public part          | one              | none
clients                     | one              | 20; 100
clients                     |                  | 20
participation               | 20 clients       | 1.0
participation               | 100 clients      | 0.1
networks                    | one              | mcmahan_cnn
networks                    |                  | alexnet, lenet, resnet18, shufflenet_v2
public.source               | several, cifar10 | cifar100
public.source               | several          | mnist
public.batch                | several          | 3000
training.epochs             |                  | 20
training.batch_size         |                  | 128
training.learning_rate      | one              | 0.005
training.learning_rate      | cifar10          | 0.02
training.learning_rate      |                  | 0.01
training.optimizer          |                  | sgd
training.momentum           |                  | 0.0
distillation.epochs         | several          | 1
distillation.batch_size     | several          | 256
distillation.learning_rate  | several, cifar10 | 0.02
distillation.learning_rate  | several          | 0.01
"""
"""The settings that the paper states for Tables 1 and 2: name, conditions, and the values of the paper.

The conditions are ``one`` or ``several`` architectures, data, or a number of clients. The first row of a setting whose
conditions hold counts.
"""


def number(settings: dict[str, Any], method: str) -> Cited | None:
    """Return the paper's number in Table 1 or 2 for a method on these data, even if other settings differ."""
    source, name = family(settings), names().get(method, method)
    if one_architecture(settings):
        return tables.ONE.get((source, str(settings["clients"]), name))
    return tables.SEVERAL.get((source, settings["partition"]["scheme"], name))


def of_cell(cell: Cell) -> Cited | None:
    """Return the paper's number for a cell of its tables, or None if the paper has no such number."""
    part = table_of(cell.part)
    if part in tables.OF_KT_PFL:
        numbers = tables.OF_KT_PFL[part].get(family(cell.settings), {})
        return numbers.get(cell.label) if cell.method == "kt_pfl" else None
    return number(cell.settings, cell.method) if part in ("table1", "table2") else None


def best(part: str, settings: dict[str, Any], labels: list[str]) -> list[tuple[str, list[str]]]:
    """Return KT-pFL's best column in the paper for each setting that a table varies, and the other columns' labels."""
    numbers, found = tables.OF_KT_PFL.get(table_of(part), {}).get(family(settings), {}), []
    for varied in dict.fromkeys(label.partition(" = ")[0] for label in numbers if " = " in label):
        own = {label: cited.value for label, cited in numbers.items() if label.startswith(f"{varied} = ")}
        highest = max(own, key=lambda label: own[label])
        if others := [label for label in own if label in labels and label != highest]:
            found.append((highest, others))
    return found


def cited(settings: dict[str, Any], names: Iterable[str]) -> dict[str, str]:
    """Return the formatted numbers of Table 1 or 2 by method, without methods that are not in the table."""
    return {name: str(known) for name in names if (known := number(settings, name))}


def names() -> dict[str, str]:
    """Return the paper's name of each method. Different readings of a method share a name and its number."""
    return {method: name for method, preset in methods.METHODS.items() if (name := preset.kind.paper_name)}


def dataset(settings: dict[str, Any]) -> str:
    """Return the name of the private data: the paper's name if it has these data, otherwise the source."""
    return DATASETS.get(family(settings), str(settings["private"]["source"]))


def family(settings: Mapping[str, Any]) -> str:
    """Return the name of an experiment's private data in the paper's tables: ``emnist`` for ``emnist:letters``."""
    kind, _, name = str(settings.get("private", {}).get("source")).partition(":")
    return PurePath(name).stem if kind == "npz" else kind


def one_architecture(settings: Mapping[str, Any]) -> bool:
    """Return whether all clients have one architecture, as in Table 2."""
    return len(architectures.names(settings.get("architectures") or [])) == 1


def table_of(part: str) -> str:
    """Return the paper's table or figure to which a part is compared: ``table1`` for ``table1_rate``."""
    return part.partition("_")[0]


def named(part: str) -> str:
    """Return a part's title: ``Table 1`` for ``table1``, ``Table 1 (rate)`` for ``table1_rate``."""
    own, _, variant = part.partition("_")
    name = own.rstrip("0123456789")
    called = f"{name.capitalize()} {own.removeprefix(name)}".strip()
    return f"{called} ({variant.replace('_', ' ')})" if variant else called


def differences(settings: dict[str, Any]) -> list[str]:
    """Return in words how the settings differ from those that the paper states for Table 1 or 2; empty if they do not.

    Missing settings are not compared, and neither are settings that only the released code shows, such as rounds.
    """
    ours, data = {name: value for name, value in flat(settings).items() if value is not None}, family(settings)
    source, public = str(ours.get("private.source")), ours.get("public.source")
    opened = ours.get("public.share", 0.0) if public == "open_part" else 0.0
    ours |= {"private data": DATASETS.get(data, source), "networks": _networks(settings)}
    ours |= {"clients": settings.get("clients") or "all", "partition.scheme": str(ours.get("partition.scheme"))}
    ours |= {"unused public part": f"{100 * opened:g} %" if opened else "none"} if public else {}
    ours |= {"classes": len(ours["private.classes"])} if "private.classes" in ours else {}
    holds, found = {"one" if one_architecture(settings) else "several", data, f"{ours['clients']} clients"}, {}
    for line in STATED.strip().splitlines():
        name, of, values = (part.strip() for part in line.split("|"))
        if name not in found and name in ours and holds.issuperset(filter(None, of.split(", "))):
            value = words.as_text(ours[name])
            agrees = value in values.split("; ")
            found[name] = "" if agrees else f"{name} {value} instead of {values.replace('; ', ' or ')}"
    if source.startswith("npz:") and data in DATASETS:
        found["images"] = f"images of the file {source} instead of all of {DATASETS[data]}"
    return list(filter(None, found.values()))


def _networks(settings: Mapping[str, Any]) -> str:
    """Return the clients' architectures, and whether there are several in unequal numbers."""
    models = settings.get("architectures") or []
    if isinstance(models, dict):
        clients = settings.get("clients")
        models = list(architectures.dealt(models, range(clients)).values()) if clients else architectures.names(models)
    counts = Counter(models)
    return (", ".join(sorted(counts)) or "None") + " in unequal numbers" * (len(set(counts.values())) > 1)
