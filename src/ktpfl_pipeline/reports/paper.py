"""The paper's own numbers, and where they may stand beside ours.

Zhang, Guo, Ma, Wang, Xu, Wu: Parameterized Knowledge Transfer for Personalized Federated Learning, NeurIPS 2021.
Only numbers that were read in the paper are here: to add one, add a line with its source. Table 1 has six methods on
three datasets and two partitions; Table 2 has eight with one architecture, with 20 clients and with 100 of which a
tenth is in a round. Most cells we could not read in a reliable rendering, and they are left out; nor do we know Table
2's partition, so its numbers never stand beside ours as of the same setting. No row is of local-only training. Its
Non-IID_1 is ``all_labels`` here, its Non-IID_2 is ``two_labels``, as the captions of its figures have it.
"""

from collections import Counter
from collections.abc import Iterable
from pathlib import PurePath
from typing import Any

from ktpfl_pipeline import methods
from ktpfl_pipeline.core import architectures
from ktpfl_pipeline.core.identity import flat
from ktpfl_pipeline.reports.words import plural

TABLE_1 = {
    ("fashion_mnist", "two_labels", "KT-pFL"): 75.6,
    ("fashion_mnist", "two_labels", "FedMD"): 66.1,
}
"""Mean test accuracy over clients in percent, by private data source, partition and the paper's name of the method."""
TABLE_2 = {
    ("cifar10", 20, "FedAvg"): 51.94,
    # Below FedAvg's own with 20 clients, above it with 100: perhaps a misprint, or another evaluation.
    ("cifar10", 20, "FedAvg-Local FT"): 42.88,
    ("cifar10", 100, "FedAvg-Local FT"): 50.91,
}
"""The same by private data source, number of clients and the paper's name of the method."""
RHOS = ("ρ = 0.1", "ρ = 0.3", "ρ = 0.5", "ρ = 0.7")
BEST = {
    ("table4", "emnist"): ("ρ = 0.7", RHOS),
    ("table4", "fashion_mnist"): ("ρ = 0.5", RHOS),
    ("table4", "cifar10"): ("ρ = 0.5", RHOS),
    ("table6", "cifar10"): ("|D_r| = 500", ("|D_r| = 3000",)),
}
"""Of KT-pFL's hyperparameter study, the setting that the paper finds better than which others, as ``conf/`` calls them.

The study's numbers we could not read. Table 4 is ρ and Table 6 |D_r| in our numbering (docs/how_to/paper.md).
"""
ROUNDS = 30
"""Of the communication figure; the paper states none for its tables."""

DATASETS = {"emnist": "EMNIST", "fashion_mnist": "Fashion-MNIST", "cifar10": "CIFAR-10"}
PUBLIC = {"emnist": "mnist", "fashion_mnist": "mnist", "cifar10": "cifar100"}
"""Public data of Table 1, by private data."""
PARTITIONS = ("two_labels", "all_labels")
CLASSES, CLIENTS = 10, 20
TRAINING = {"training.epochs": 20, "training.batch_size": 128}  # section 5.1
SCALE = {"public.batch": 3000, **TRAINING, "distillation.epochs": 1, "distillation.batch_size": 256}
ARCHITECTURES, ARCHITECTURE = ("lenet", "alexnet", "resnet18", "shufflenet_v2"), "mcmahan_cnn"
PARTICIPATION = {20: 1.0, 100: 0.1}
"""Share of the clients in a round in Table 2, by their number."""


def one_architecture(settings: dict[str, Any]) -> bool:
    """Say whether all clients have one architecture, as in Table 2."""
    return len(architectures.names(settings.get("architectures") or [])) == 1


def number(settings: dict[str, Any], method: str) -> float | None:
    """Return the accuracy in percent that the paper reports for a method on such data, whatever else differs.

    Args:
        settings: the experiment's. Its architectures say which table is meant, its private data and its partition or
            its number of clients which column.
        method: registry name.
    """
    source, name = family(settings), names().get(method, method)
    if one_architecture(settings):
        return TABLE_2.get((source, settings["clients"], name))
    return TABLE_1.get((source, settings["partition"]["scheme"], name))


def written(settings: dict[str, Any], method: str) -> str | None:
    """Return the same as it stands in tables."""
    known = number(settings, method)
    return None if known is None else f"{known:.1f}"


def names() -> dict[str, str]:
    """Return the paper's name of each method: its one number stands beside every reading of that method."""
    return {method: name for method, preset in methods.METHODS.items() if (name := preset.kind.paper_name)}


def dataset(settings: dict[str, Any]) -> str:
    """Return what the private data is called: as in the paper where it has that data, else by its source."""
    return DATASETS.get(family(settings), str(settings["private"]["source"]))


def differences(settings: dict[str, Any]) -> list[str]:
    """Return in what the settings differ from the paper's, in words; empty in nothing.

    Compared is what section 5.1 states and, with one architecture, what models as knowledge need. The paper states
    neither rounds nor temperature nor seeds of its accuracy tables, so these cannot be compared.
    """
    given = flat(settings)
    models = settings.get("architectures") or []
    if isinstance(models, dict):
        number_of = settings.get("clients")
        models = (
            list(architectures.dealt(models, range(number_of)).values()) if number_of else architectures.names(models)
        )
    source, classes = str(given.get("private.source")), given.get("private.classes")
    family, scheme = _family(source), given.get("partition.scheme")
    skew = given.get("partition.feature_skew", "none")
    found = {
        f"data {source}, whatever it holds of {DATASETS.get(family)}": source.startswith("npz:") and family in DATASETS,
        f"{given.get('private.samples')} private samples instead of all": given.get("private.samples") is not None,
        f"data {source} instead of {_or(DATASETS.values())}": family not in DATASETS,
        f"{len(classes or ())} classes instead of {CLASSES}": classes is not None and len(classes) != CLASSES,
        f"feature skew {skew}": skew != "none",
        f"partition {scheme} instead of {_or(PARTITIONS)}": scheme not in PARTITIONS,
        **(_of_table_2(given, models) if one_architecture(settings) else _of_table_1(given, models, family)),
    }
    return [text for text, differs in found.items() if differs]


def shorter(settings: dict[str, Any]) -> list[str]:
    """Return how many rounds were run, in words, where that is not the number in the paper's communication figure."""
    rounds = settings.get("rounds", ROUNDS)
    return [f"{plural(rounds, 'round')} instead of {ROUNDS}, as in its communication figure"] * (rounds != ROUNDS)


def family(settings: dict[str, Any]) -> str:
    """Return what `TABLE_1` and `BEST` call an experiment's private data."""
    return _family(str(settings["private"]["source"]))


def _of_table_1(given: dict[str, Any], names: list[str], family: str) -> dict[str, bool]:
    clients, public = given.get("clients") or "all", given.get("public.source")
    models = Counter(names)
    unlike = set(models) != set(ARCHITECTURES) or len(set(models.values())) != 1
    named = f"models {', '.join(models) or None} instead of {', '.join(ARCHITECTURES)} in equal numbers"
    return {
        f"{clients} clients instead of {CLIENTS}": clients != CLIENTS,
        named: unlike,
        f"public data {public} instead of {PUBLIC.get(family)}": public not in (None, PUBLIC.get(family, public)),
        **_other_scale(given, SCALE),
    }


def _of_table_2(given: dict[str, Any], names: list[str]) -> dict[str, bool]:
    clients, share, model = given.get("clients"), given.get("participation", 1.0), names[0]
    usual = PARTICIPATION.get(clients) if isinstance(clients, int) else None
    return {
        "a partition that may not be Table 2's, which we do not know": True,
        f"{clients} clients instead of {_or(map(str, PARTICIPATION))}": usual is None,
        f"participation {share} instead of {usual} with {clients} clients": usual not in (None, share),
        f"models {model} instead of {ARCHITECTURE}": model != ARCHITECTURE,
        **_other_scale(given, TRAINING),
    }


def _other_scale(given: dict[str, Any], scale: dict[str, int]) -> dict[str, bool]:
    return {f"{name} {given.get(name)} instead of {n}": given.get(name, n) != n for name, n in scale.items()}


def _family(source: str) -> str:
    """Return ``emnist`` for ``emnist:letters``, and for a file of that name, ``npz:images/emnist.npz``."""
    kind, _, name = source.partition(":")
    return PurePath(name).stem if kind == "npz" else kind


def _or(names: Iterable[str]) -> str:
    *first, last = names
    return f"{', '.join(first)} or {last}" if first else last
