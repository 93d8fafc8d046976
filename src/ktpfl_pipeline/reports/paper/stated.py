"""Every setting that the KT-pFL paper or its released code states, and how an experiment's settings compare with them.

What the paper states decides whether its numbers belong to the same setting; what only the released code shows is
compared too, and marked as such.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from ktpfl_pipeline.core import architectures
from ktpfl_pipeline.core.identity import flat

DATASETS = {"emnist": "EMNIST", "fashion_mnist": "Fashion-MNIST", "cifar10": "CIFAR-10"}
PUBLIC = {"emnist": "mnist", "fashion_mnist": "mnist", "cifar10": "cifar100"}
"""Public data of Table 1, by private data."""
PARTITIONS = ("two_labels", "all_labels")
ARCHITECTURES, ARCHITECTURE = ("lenet", "alexnet", "resnet18", "shufflenet_v2"), "mcmahan_cnn"
PARTICIPATION = {20: 1.0, 100: 0.1}
"""Share of the clients in a round in Table 2, by their number."""
ROUNDS = 30
SETUP, TEXT, CODE = "section 5.1", "section 5.2", "released code"
UNSTATED = "not stated"
STUDIES = ("table3", "table4", "table5", "table6")


@dataclass(frozen=True)
class Known:
    """The known settings of one cell.

    Attributes:
        given: the experiment's settings, flat; missing settings are not compared.
        models: an architecture for each client, or the set of architectures if the number of clients is not known.
        part: the table or figure whose setting is compared; by default Table 1 or 2, by the number of architectures.
        label: the column's label.
        method: registry name; empty for settings that all methods share.
        hyperparameters: the method's hyperparameters.
        samples: private samples per client, mean over clients and seeds; None if not known.
    """

    given: Mapping[str, Any]
    models: list[str]
    part: str
    label: str = ""
    method: str = ""
    hyperparameters: Mapping[str, Any] | None = None
    samples: float | None = None

    @property
    def family(self) -> str:
        """The tables' name for the private data."""
        return family_of(str(self.given.get("private.source")))

    @property
    def one(self) -> bool:
        """Whether the setting is that of Table 2 and Figure 4."""
        return self.part in ("table2", "figure4")

    @property
    def study(self) -> bool:
        """Whether the setting is that of Tables 3 to 6."""
        return self.part in STUDIES

    def column(self, name: str) -> str:
        """Return the value in the label of a column, of E in ``E = 5``; empty where the column varies another one."""
        own, _, value = self.label.partition(" = ")
        return value if own == name else ""


@dataclass(frozen=True)
class Setting:
    """One stated setting next to ours.

    Attributes:
        name: the name of the setting.
        paper: the value of the paper or its code.
        source: where this is stated.
        ours: the value of the experiment.
        differs: whether the two differ; None if the paper states no value.
    """

    name: str
    paper: str
    source: str
    ours: str
    differs: bool | None

    @property
    def told(self) -> str:
        """The difference in words."""
        return f"{self.name} {self.ours} instead of {self.paper}"


def known(
    settings: Mapping[str, Any],
    part: str = "",
    label: str = "",
    method: str = "",
    hyperparameters: Mapping[str, Any] | None = None,
    samples: float | None = None,
) -> Known:
    """Return what is known of a cell from an experiment's settings; see `Known`."""
    models = settings.get("architectures") or []
    if isinstance(models, dict):
        clients = settings.get("clients")
        models = list(architectures.dealt(models, range(clients)).values()) if clients else architectures.names(models)
    default = "table2" if one_architecture(settings) else "table1"
    part = part.partition("_")[0]
    return Known(flat(settings), models, part or default, label, method, hyperparameters, samples)


def one_architecture(settings: Mapping[str, Any]) -> bool:
    """Return whether all clients have one architecture, as in Table 2."""
    return len(architectures.names(settings.get("architectures") or [])) == 1


def compared(cell: Known) -> list[Setting]:
    """Return every stated setting that concerns a cell, next to ours, in the order of `STATED`."""
    return [setting for rule in STATED if (setting := rule(cell)) is not None]


def family_of(source: str) -> str:
    """Return ``emnist`` for ``emnist:letters``, and for a file of that name, ``npz:images/emnist.npz``."""
    kind, _, name = source.partition(":")
    return PurePath(name).stem if kind == "npz" else kind


def joined(names: Iterable[Any]) -> str:
    """Return alternatives in words: ``a, b or c``."""
    *first, last = map(str, names)
    return f"{', '.join(first)} or {last}" if first else last


Rule = Callable[[Known], Setting | None]


def _plain(name: str, key: str, paper: Callable[[Known], Any], source: Callable[[Known], str] | str) -> Rule:
    """Return the rule for a setting that has one value in the paper; a rule without a value is not for the cell."""

    def rule(cell: Known) -> Setting | None:
        value = paper(cell)
        if value is None or key not in cell.given:
            return None
        ours = cell.given[key]
        said = source if isinstance(source, str) else source(cell)
        return Setting(name, str(value), said, str(ours), None if value == UNSTATED else ours != value)

    return rule


def _data(cell: Known) -> Setting:
    source = str(cell.given.get("private.source"))
    return Setting("private data", joined(DATASETS.values()), SETUP, source, cell.family not in DATASETS)


def _file(cell: Known) -> Setting | None:
    source = str(cell.given.get("private.source"))
    if not source.startswith("npz:") or cell.family not in DATASETS:
        return None
    return Setting("private images", f"all of {DATASETS[cell.family]}", SETUP, f"of the file {source}", True)


def _classes(cell: Known) -> Setting | None:
    classes = cell.given.get("private.classes")
    return None if classes is None else Setting("classes", "10", SETUP, str(len(classes)), len(classes) != 10)


def _samples(cell: Known) -> Setting | None:
    """Compare the samples of a client with the released code's; without them, a limit with the whole dataset."""
    if cell.samples is not None and cell.family in DATASETS:
        code = 360 if cell.family == "cifar10" else 600
        return Setting("samples per client", str(code), CODE, f"{cell.samples:.0f}", round(cell.samples) != code)
    limit = cell.given.get("private.samples")
    return None if limit is None else Setting("private samples", "all", SETUP, str(limit), True)


def _replacement(cell: Known) -> Setting | None:
    if cell.samples is None or cell.one:
        return None
    return Setting("samples drawn", "with replacement", CODE, "without", True)


def _skew(cell: Known) -> Setting | None:
    skew = cell.given.get("partition.feature_skew", "none")
    return Setting("feature skew", "none", SETUP, skew, True) if skew != "none" else None


def _partition(cell: Known) -> Setting:
    ours = str(cell.given.get("partition.scheme"))
    if cell.study:
        return Setting("partition", UNSTATED, TEXT, ours, None)
    if cell.one:
        return Setting("partition", "all labels", "Figure 4's caption", ours, ours not in ("all_labels", "lognormal"))
    wanted = {"figure2": ("all_labels",), "figure3": ("two_labels",)}.get(cell.part, PARTITIONS)
    return Setting("partition", joined(wanted), SETUP, ours, ours not in wanted)


def _amounts(cell: Known) -> Setting | None:
    """Compare how many samples of each class clients have with the released code's; see `data.partition.schemes`."""
    if not cell.one:
        return None
    ours, sigma = str(cell.given.get("partition.scheme")), cell.given.get("partition.sigma", 2.0)
    has = f"lognormal(0, {sigma:g})" if ours == "lognormal" else f"by {ours}"
    return Setting("amounts of each class", "lognormal(0, 2)", CODE, has, has != "lognormal(0, 2)")


def _train_share(cell: Known) -> Setting | None:
    test, validation = cell.given.get("partition.test_share"), cell.given.get("partition.validation_share")
    if test is None or validation is None:
        return None
    ours = 100 * (1 - test) * (1 - validation)
    return Setting("share to train on", "75 %", SETUP, f"{ours:.3g} %", abs(ours - 75) > 1e-6)


def _unused(cell: Known) -> Setting | None:
    source = cell.given.get("public.source")
    if not cell.one or source is None:
        return None
    opened = cell.given.get("public.share", 0.0) if source == "open_part" else 0.0
    return Setting("unused public part", "none", TEXT, f"{100 * opened:g} %" if opened else "none", bool(opened))


def _clients(cell: Known) -> Setting:
    clients = cell.given.get("clients") or "all"
    wanted = tuple(PARTICIPATION) if cell.part == "table2" else (20,)
    return Setting("clients", joined(wanted), SETUP, str(clients), clients not in wanted)


def _participation(cell: Known) -> Setting | None:
    share, clients = cell.given.get("participation"), cell.given.get("clients")
    usual = PARTICIPATION.get(clients) if isinstance(clients, int) else None
    if share is None or usual is None:
        return None
    return Setting(f"participation with {clients} clients", str(usual), "Table 2's caption", str(share), share != usual)


def _models(cell: Known) -> Setting | None:
    counts = Counter(cell.models)
    ours = ", ".join(dict.fromkeys(cell.models)) or "None"
    if cell.study:
        return Setting("networks", UNSTATED, TEXT, ours, None)
    if cell.one:
        return Setting("networks", ARCHITECTURE, "Table 2's caption", ours, ours != ARCHITECTURE)
    unlike = set(counts) != set(ARCHITECTURES) or len(set(counts.values())) != 1
    return Setting("networks", f"{', '.join(ARCHITECTURES)} in equal numbers", SETUP, ours, unlike)


def _public(cell: Known) -> Setting | None:
    source = cell.given.get("public.source")
    if cell.one or source is None:
        return None
    wanted = PUBLIC.get(cell.family)
    if cell.part == "table5":
        wanted = {"public MNIST": "mnist", "public EMNIST": "emnist", "an open part": "open_part"}.get(cell.label)
    if wanted is None:
        return None
    where = "Table 5" if cell.part == "table5" else TEXT
    return Setting("public data", wanted, where, str(source), family_of(str(source)) != wanted)


def _integer(cell: Known, name: str, otherwise: int) -> int:
    own = cell.column(name) if cell.study else ""
    return int(own) if own.isdecimal() else otherwise


def _rate(cell: Known) -> float | None:
    if cell.one:
        return 0.005
    return 0.01 if cell.study or cell.family != "cifar10" else 0.02


def _distilled(value: Any) -> Callable[[Known], Any]:
    return lambda cell: None if cell.one else value(cell) if callable(value) else value


def _where_rate(cell: Known) -> str:
    if cell.one:
        return "Figure 4's caption"
    return "section 5.2.2" if cell.study else TEXT


def _rounds(cell: Known) -> Setting | None:
    ours = cell.given.get("rounds")
    if ours is None:
        return None
    if cell.part == "figure5":
        return Setting("rounds", str(ROUNDS), "Figure 5's caption", str(ours), ours != ROUNDS)
    return Setting("rounds", str(ROUNDS), CODE, str(ours), ours != ROUNDS)


def _hyperparameter(name: str, method: str, key: str, paper: Callable[[Known], Any], source: str) -> Rule:
    def rule(cell: Known) -> Setting | None:
        if cell.method != method or cell.hyperparameters is None or key not in cell.hyperparameters:
            return None
        value, ours = paper(cell), cell.hyperparameters[key]
        if value is None:
            return Setting(name, UNSTATED, source, _written(ours), None)
        return Setting(name, str(value), source, _written(ours), ours != value)

    return rule


def _written(value: Any) -> str:
    """Return a hyperparameter as conf/ has it."""
    return "null" if value is None else str(value)


def _rho(cell: Known) -> float | None:
    own = cell.column("ρ")
    return float(own) if own and cell.part == "table4" else None


def _feddf(cell: Known) -> Setting | None:
    forms = {"feddf": True, "pfeddf": True, "feddf_soft": False, "pfeddf_soft": False}
    if cell.method not in forms or cell.part == "figure5":
        return None
    ours = "averaged" if forms[cell.method] else "left out"
    return Setting("FedDF's parameters", "left out", f"comment in {SETUP}", ours, forms[cell.method])


def _fine_tuned(cell: Known) -> Setting | None:
    if cell.method not in ("pfeddf", "pfeddf_soft", "fedavg_ft") or cell.hyperparameters is None:
        return None
    ours = cell.hyperparameters.get("epochs") or cell.given.get("training.epochs")
    return Setting("fine-tuning", "several epochs", f"{SETUP}, footnote", f"{ours} epochs", None)


def _seeds(cell: Known) -> Setting | None:
    seeds = cell.given.get("seeds")
    return None if not seeds else Setting("runs of a cell", "multiple", "section 5.2", str(len(seeds)), len(seeds) < 2)


STATED: tuple[Rule, ...] = (
    _data,
    _file,
    _classes,
    _samples,
    _replacement,
    _skew,
    _partition,
    _amounts,
    _train_share,
    _plain("partition.test_share", "partition.test_share", lambda cell: 0.25, SETUP),
    _unused,
    _clients,
    _participation,
    _models,
    _public,
    _plain("public.batch", "public.batch", _distilled(lambda cell: _integer(cell, "|D_r|", 3000)), TEXT),
    _rounds,
    _plain("training.epochs", "training.epochs", lambda cell: _integer(cell, "E", 20), TEXT),
    _plain("training.batch_size", "training.batch_size", lambda cell: 128, TEXT),
    _plain("training.learning_rate", "training.learning_rate", _rate, _where_rate),
    _plain("training.optimizer", "training.optimizer", lambda cell: "sgd", "Eq. 5"),
    _plain("training.momentum", "training.momentum", lambda cell: 0.0, "Eq. 5"),
    _plain("distillation.epochs", "distillation.epochs", _distilled(lambda cell: _integer(cell, "R", 1)), TEXT),
    _plain("distillation.batch_size", "distillation.batch_size", _distilled(256), TEXT),
    _plain("distillation.learning_rate", "distillation.learning_rate", _distilled(_rate), _where_rate),
    _plain("distillation.temperature", "distillation.temperature", _distilled(10.0), CODE),
    _plain("distillation.batch_norm", "distillation.batch_norm", _distilled("train"), CODE),
    _hyperparameter("η₃ of KT-pFL", "kt_pfl", "step", lambda cell: 0.01 if cell.study else None, "section 5.2.2"),
    _hyperparameter("ρ of KT-pFL", "kt_pfl", "rho", _rho, "Table 4"),
    _hyperparameter("ρ of KT-pFL", "kt_pfl_params", "rho", lambda cell: None, "section 5.2"),
    _hyperparameter("K of TopK-pFL", "topk_pfl", "k", lambda cell: 5, f"{SETUP}, footnote"),
    _feddf,
    _fine_tuned,
    _seeds,
)
"""The rules, one for each setting; a rule returns nothing where its setting does not concern a cell."""
