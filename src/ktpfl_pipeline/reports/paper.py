"""The paper's own numbers, and where they may stand beside ours.

Zhang, Guo, Ma, Wang, Xu, Wu: Parameterized Knowledge Transfer for Personalized Federated Learning, NeurIPS 2021.
Only numbers that were read in the paper are here: to add one, add a line with its source. Table 1 has six methods
(FedMD, FedDF, pFedDF, Sim-pFL, TopK-pFL, KT-pFL) on three datasets and two partitions; Table 2 has eight (FedAvg,
FedAvg-Local FT, Per-FedAvg, pFedMe, FedAMP, FedFomo, FedHN, KT-pFL) with one architecture, with 20 clients and with 100
of which a tenth is in a round. Most cells we could not read in a reliable rendering, and they are left out; nor do we
know Table 2's partition, so its numbers never stand beside ours as of the same setting. The paper has no row for
local-only training. Its Non-IID_1 is ``all_labels`` here, its Non-IID_2 is ``two_labels``, as the captions of its
figures have it.
"""

from collections import Counter
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from ktpfl_pipeline.core.identity import flat


@dataclass(frozen=True)
class Number:
    """An accuracy that the paper reports, in percent.

    Attributes:
        accuracy: mean test accuracy over clients.
        table: where it stands in the paper.
        setting: what the paper calls the row and column.
    """

    accuracy: float
    table: str
    setting: str


NUMBERS: dict[tuple[str, str, str], Number] = {
    ("fashion_mnist", "two_labels", "KT-pFL"): Number(75.6, "Table 1", "heterogeneous, Fashion-MNIST, two labels"),
    ("fashion_mnist", "two_labels", "FedMD"): Number(66.1, "Table 1", "heterogeneous, Fashion-MNIST, two labels"),
}
"""Of Table 1, by private data source, partition scheme and the paper's name of the method."""

TABLE_2: dict[tuple[str, int, str], Number] = {
    ("cifar10", 20, "FedAvg"): Number(51.94, "Table 2", "one architecture, CIFAR-10, 20 clients"),
    # Below FedAvg's own with 20 clients, above it with 100: perhaps a misprint, or another evaluation.
    ("cifar10", 20, "FedAvg-Local FT"): Number(42.88, "Table 2", "one architecture, CIFAR-10, 20 clients"),
    ("cifar10", 100, "FedAvg-Local FT"): Number(50.91, "Table 2", "one architecture, CIFAR-10, 100 clients"),
}
"""By private data source, number of clients and the paper's name of the method."""

NAMES = {
    "kt_pfl": "KT-pFL",
    "kt_pfl_paper_literal": "KT-pFL",
    "kt_pfl_authors": "KT-pFL",
    "fedmd": "FedMD",
    "feddf": "FedDF",
    "feddf_soft": "FedDF",
    "pfeddf": "pFedDF",
    "sim_pfl": "Sim-pFL",
    "topk_pfl": "TopK-pFL",
    "kt_pfl_params": "KT-pFL",
    "fedavg": "FedAvg",
    "fedavg_ft": "FedAvg-Local FT",
    "per_fedavg": "Per-FedAvg",
    "per_fedavg_hf": "Per-FedAvg",
    "pfedme": "pFedMe",
    "fedamp": "FedAMP",
    "heur_fedamp": "FedAMP",
    "fedfomo": "FedFomo",
    "pfedhn": "FedHN",
}
"""The paper's name of a method: its one number stands beside every reading of that method. Our own have none."""

DATASETS = {"emnist": "EMNIST", "fashion_mnist": "Fashion-MNIST", "cifar10": "CIFAR-10"}
PUBLIC = {"emnist": "mnist", "fashion_mnist": "mnist", "cifar10": "cifar100"}
"""Public data of Table 1, by private data."""
PARTITIONS = ("two_labels", "all_labels")
CLASSES = 10
CLIENTS = 20
SCALE = {  # section 5.1
    "public.batch": 3000,
    "training.epochs": 20,
    "training.batch_size": 128,
    "distillation.epochs": 1,
    "distillation.batch_size": 256,
}
ARCHITECTURES = ("lenet", "alexnet", "resnet18", "shufflenet_v2")
ARCHITECTURE = "mcmahan_cnn"
PARTICIPATION = {20: 1.0, 100: 0.1}
"""Share of the clients in a round in Table 2, by their number."""


def one_architecture(settings: dict[str, Any]) -> bool:
    """Say whether all clients have one architecture, as in Table 2."""
    return len(set(settings.get("architectures") or [])) == 1


def number(settings: dict[str, Any], method: str) -> float | None:
    """Return the accuracy in percent that the paper reports for a method on such data, whatever else differs.

    Args:
        settings: the experiment's. Its architectures say which table is meant, its private data and its partition or
            its number of clients which column.
        method: registry name.
    """
    source = settings["private"]["source"]
    if one_architecture(settings):
        found = TABLE_2.get((_family(source), settings["clients"], NAMES.get(method, method)))
        return None if found is None else found.accuracy
    return paper_number(source, settings["partition"]["scheme"], method)


def paper_number(dataset: str, partition: str, method: str) -> float | None:
    """Return the accuracy in percent that the paper reports for heterogeneous models, None where we cannot cite one.

    Args:
        dataset: private data source, ``fashion_mnist`` for example.
        partition: partition scheme, ``two_labels`` or ``all_labels``.
        method: registry name.
    """
    number = NUMBERS.get((_family(dataset), partition, NAMES.get(method, method)))
    return None if number is None else number.accuracy


def title(source: str) -> str:
    """Return what a private data source is called: as in the paper where it has that data, else by its own name."""
    return DATASETS.get(_family(source), source)


def differences(settings: dict[str, Any]) -> list[str]:
    """Return in what the settings differ from the paper's, in words; empty in nothing.

    Compared are the private data and its classes, the public data, the partition, the number of clients and the
    architectures, and the epochs, batches and public samples of section 5.1; with one architecture, those that models
    as knowledge need. The paper states neither rounds nor temperature nor seeds of its accuracy tables, so these cannot
    be compared.
    """
    homogeneous = one_architecture(settings)
    source = str(settings.get("private", {}).get("source"))
    classes = settings.get("private", {}).get("classes")
    scheme = settings.get("partition", {}).get("scheme")
    clients = settings.get("clients")
    architectures = Counter(settings.get("architectures") or [])
    found = []
    if source.startswith("npz:") and _family(source) in DATASETS:
        found.append(f"data {source}, whatever it holds of {DATASETS[_family(source)]}")
    if (samples := settings.get("private", {}).get("samples")) is not None:
        found.append(f"{samples} private images instead of all")
    if _family(source) not in DATASETS:
        found.append(f"data {source} instead of {_or(DATASETS.values())}")
    if classes is not None and len(classes) != CLASSES:
        found.append(f"{len(classes)} classes instead of {CLASSES}")
    if scheme not in PARTITIONS:
        found.append(f"partition {scheme} instead of {_or(PARTITIONS)}")
    if homogeneous:
        return found + _differences_of_one_architecture(settings)
    if clients != CLIENTS:
        found.append(f"{clients} clients instead of {CLIENTS}")
    if set(architectures) != set(ARCHITECTURES) or len(set(architectures.values())) != 1:
        found.append(
            f"models {', '.join(architectures) or None} instead of {', '.join(ARCHITECTURES)} in equal numbers"
        )
    given = flat(settings)
    public = given.get("public.source")
    if public is not None and public != PUBLIC.get(_family(source), public):
        found.append(f"public data {public} instead of {PUBLIC[_family(source)]}")
    return found + _other_scale(given, SCALE)


def _differences_of_one_architecture(settings: dict[str, Any]) -> list[str]:
    clients, participation = settings.get("clients"), settings.get("participation", 1.0)
    (architecture,) = set(settings["architectures"])
    found = ["a partition that may not be Table 2's, which we do not know"]
    if clients not in PARTICIPATION:
        found.append(f"{clients} clients instead of {_or(map(str, PARTICIPATION))}")
    elif participation != PARTICIPATION[clients]:
        found.append(f"participation {participation} instead of {PARTICIPATION[clients]} with {clients} clients")
    if architecture != ARCHITECTURE:
        found.append(f"models {architecture} instead of {ARCHITECTURE}")
    return found + _other_scale(
        flat(settings), {name: value for name, value in SCALE.items() if name.startswith("training.")}
    )


def _other_scale(given: dict[str, Any], scale: dict[str, int]) -> list[str]:
    return [
        f"{name} {given[name]} instead of {value}" for name, value in scale.items() if given.get(name, value) != value
    ]


def same_setting(settings: dict[str, Any]) -> bool:
    """Say whether the settings are the paper's, as far as it states them."""
    return not differences(settings)


def _family(source: str) -> str:
    """Return ``emnist`` for ``emnist:letters``, and for a file of that name, ``npz:images/emnist.npz``."""
    kind, _, name = source.partition(":")
    return PurePath(name).stem if kind == "npz" else kind


def _or(names: Any) -> str:
    *first, last = names
    return f"{', '.join(first)} or {last}" if first else last
