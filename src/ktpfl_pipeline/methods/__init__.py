"""The registry `METHODS` of all methods. A new method needs one file and one line in the registry.

The class of a method declares all its other properties (`core/method.py`). `shared/` contains code that several methods
use. A class is imported on first use, so listing the names does not import torch. A method outside this package needs
no line in the registry: its name is its dotted path, ``my_package.my_method:Nearest``.
"""

import inspect
import re
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ktpfl_pipeline.core.errors import InputError, unknown
from ktpfl_pipeline.core.extensions import is_path, load, not_a_path

if TYPE_CHECKING:
    from ktpfl_pipeline.core.method import Method


@dataclass(frozen=True)
class Preset:
    """A method's class, and hyperparameters that replace the defaults of the class.

    Attributes:
        path: the dotted path of the class, ``package.module:Class``; a leading dot means this package.
        title: the title in tables and figures; empty takes the title of the class.
        values: the hyperparameters that replace defaults, by name.
        compared: whether comparisons include the method by default.
    """

    path: str
    title: str = ""
    values: Mapping[str, Any] = field(default_factory=dict)
    compared: bool = True

    @cached_property
    def kind(self) -> "type[Method[Any]]":
        """The class of the method, imported on first access.

        Raises:
            InputError: if the class cannot be imported, is not a runnable method, or has an invalid declaration.
        """
        from ktpfl_pipeline.core.method import Method

        kind = load(__name__ + self.path if self.path.startswith(".") else self.path, "method")
        if not (inspect.isclass(kind) and issubclass(kind, Method)) or inspect.isabstract(kind):
            raise InputError(
                f"{self.path!r} is not a method: it must be a class that derives from Personal, Shared or Method of "
                "ktpfl_pipeline.core.method and has init, round and personal."
            )
        kind.check_class(self.path)
        return kind


ANY_ARCHITECTURES = {
    "kt_pfl": Preset(".kt_pfl:KTpFL"),
    "kt_pfl_joint": Preset(".kt_pfl_joint:KTpFLJoint"),
    "kt_pfl_likelihood": Preset(".kt_pfl_likelihood:KTpFLLikelihood"),
    # Eq. (7) with the constants of the paper. The projection, the mean over public samples and λ = 1 are ours.
    "kt_pfl_paper_literal": Preset(
        ".kt_pfl:KTpFL",
        "KT-pFL (paper-literal)",
        {"update": "pgd", "step": 0.01, "steps": 1, "rho": 0.7, "divergence_weight": 1.0},
        compared=False,
    ),
    # The authors' released code updates c before it mixes. That code uses T = 10; this preset sets no temperature.
    "kt_pfl_authors": Preset(
        ".kt_pfl:KTpFL",
        "KT-pFL (authors' code)",
        {"update": "authors", "step": 1.0, "steps": 1, "rho": 0.7, "order": "coefficients_first"},
        compared=False,
    ),
    "sim_pfl": Preset(".sim_pfl:SimPFL"),
    "topk_pfl": Preset(".sim_pfl:TopKPFL"),
    "fedmd": Preset(".fedmd:FedMD"),
    "feddf": Preset(".feddf:FedDF"),
    "feddf_soft": Preset(".feddf:FedDFSoft"),
    "pfeddf": Preset(".feddf:PFedDF", compared=False),  # reports show accuracy after fine-tuning for every method
    "pfeddf_soft": Preset(".feddf:PFedDFSoft", compared=False),
    "ds_fl": Preset(".ds_fl:DSFL"),
    "comet": Preset(".comet:COMET"),
    "fccl": Preset(".fccl:FCCL"),
    "fccl_plus": Preset(".fccl_plus:FCCLPlus"),
    "rhfl": Preset(".rhfl:RHFL"),
    "fedhenn": Preset(".fedhenn:FedHeNN"),
    "fd": Preset(".fd:FD"),
    "fedproto": Preset(".fedproto:FedProto"),
    "fedtgp": Preset(".fedtgp:FedTGP"),
    "lg_fedavg": Preset(".lg_fedavg:LGFedAvg"),
    "fedgh": Preset(".fedgh:FedGH"),
    "fedre": Preset(".fedre:FedRE"),
    "fedssa": Preset(".fedssa:FedSSA"),
    "fedgen": Preset(".fedgen:FedGen"),
    "fml": Preset(".fml:FML"),
    "fedapen": Preset(".fedapen:FedAPEN"),
    "fedkd": Preset(".fedkd:FedKD"),
    # The KL divergence of the FedKD paper, which sums over classes.
    "fedkd_summed": Preset(".fedkd:FedKD", "FedKD (summed KL)", {"divergence_weight": 1.0}, compared=False),
    "fedmrl": Preset(".fedmrl:FedMRL"),
    "local": Preset(".local:Local"),
    "scarlet": Preset(".scarlet:SCARLET"),
    "selective_fd": Preset(".selective_fd:SelectiveFD"),
    "local_matched": Preset(".local:LocalMatched"),
}
ONE_ARCHITECTURE = {
    "kt_pfl_params": Preset(".kt_pfl_params:KTpFLParams"),
    "fedavg": Preset(".fedavg:FedAvg"),
    "fedavg_ft": Preset(".fedavg:FedAvgFT", compared=False),
    "fedprox": Preset(".fedprox:FedProx"),
    "scaffold": Preset(".scaffold:SCAFFOLD"),
    "fedadam": Preset(".fedopt:FedOpt", "FedAdam"),
    # The two other optimizers of the FedAdam paper.
    "fedyogi": Preset(".fedopt:FedOpt", "FedYogi", {"optimizer": "yogi"}, compared=False),
    "fedadagrad": Preset(
        ".fedopt:FedOpt",
        "FedAdagrad",
        {"optimizer": "adagrad", "server_rate": 0.1, "beta1": 0.0},
        compared=False,
    ),
    "per_fedavg": Preset(".per_fedavg:PerFedAvg"),
    # The Hessian-free version of Per-FedAvg.
    "per_fedavg_hf": Preset(".per_fedavg:PerFedAvg", "Per-FedAvg (HF)", {"hessian": True}, compared=False),
    "pfedme": Preset(".pfedme:PFedMe"),
    "fedamp": Preset(".fedamp:FedAMP"),
    "heur_fedamp": Preset(".fedamp:HeurFedAMP"),
    "fedfomo": Preset(".fedfomo:FedFomo"),
    "pfedhn": Preset(".pfedhn:PFedHN"),
    "ditto": Preset(".ditto:Ditto"),
    "fedrep": Preset(".fedrep:FedRep"),
    "apple": Preset(".apple:APPLE"),
    "fedper": Preset(".fedper:FedPer"),
    "fedbn": Preset(".fedbn:FedBN"),
    "fedbabu": Preset(".fedbabu:FedBABU"),
    "apfl": Preset(".apfl:APFL"),
    # The adaptive α of the APFL paper. It starts from the middle one of the paper's three values.
    "apfl_adaptive": Preset(".apfl:APFL", "APFL (adaptive)", {"alpha": 0.5, "alpha_rate": None}, compared=False),
    "fedala": Preset(".fedala:FedALA"),
    "fedrod": Preset(".fedrod:FedRoD"),
    "fedpac": Preset(".fedpac:FedPAC"),
    "feddbe": Preset(".feddbe:FedDBE"),
    "fedcp": Preset(".fedcp:FedCP"),
    "gpfl": Preset(".gpfl:GPFL"),
    "pfedgraph": Preset(".pfedgraph:PFedGraph"),
    # As much work as pFedMe, which takes five inner steps per mini-batch.
    "local_5x": Preset(".local:LocalMatched", "Local-only (5 × work)", {"work": 5.0, "public": False}),
}
METHODS: dict[str, Preset] = ANY_ARCHITECTURES | ONE_ARCHITECTURE
"""All presets by name: first the methods that allow several architectures, then the methods that need a single one."""


def find(name: str) -> Preset:
    """Return the method or preset called `name`, or the class at a dotted path.

    Raises:
        InputError: if no method has this name, or the dotted path does not lead to a method.
    """
    if name not in METHODS and not is_path(name):
        if meant := dotted(name):
            raise not_a_path(f"The method {name!r}", meant)
        raise unknown("method", name, METHODS)
    preset = METHODS.get(name) or Preset(name)
    preset.kind  # noqa: B018 - imports the class now, so that a wrong path raises InputError here
    return preset


def dotted(name: str) -> str:
    """Return the dotted path that the user probably meant by a file name or a path without a colon; empty if none."""
    given = re.fullmatch(r"(?P<module>\w+(?:[./]\w+)*?)(?:\.py)?[:.](?P<name>(?!py$)\w+)", name)
    return f"{given['module'].replace('/', '.')}:{given['name']}" if given and not is_path(name) else ""


def create(name: str, hyperparameters: Mapping[str, Any] | None = None, where: str = "") -> "Method[Any]":
    """Return the method called `name` with `hyperparameters` instead of its defaults.

    Args:
        name: the method's registry name or dotted path.
        hyperparameters: the values that replace defaults, by name.
        where: the path of the hyperparameters in the configuration, for messages; empty takes the method's name.

    Raises:
        InputError: if the method or a hyperparameter does not exist, a hyperparameter has no value, or a value or a
            default is not allowed.
    """
    from ktpfl_pipeline.core.validation import check_some

    preset = find(name)
    given = check_some(preset.kind, {**preset.values, **(hyperparameters or {})}, where or name)
    entries = [entry for entry in fields(preset.kind) if entry.init and entry.name not in given]
    if missing := [entry.name for entry in entries if entry.default is entry.default_factory is MISSING]:
        raise InputError(
            f"{name}.{missing[0]} has neither a default nor a value: give it a default in the class, or a value under "
            f"methods.{name}."
        )
    try:
        check_some(preset.kind, {entry.name: entry.default for entry in entries if entry.default is not MISSING}, name)
    except InputError as error:
        raise InputError(
            f"{error} It is the default of {preset.path}: change it there, or give another value."
        ) from error
    return preset.kind(**given)


def title(name: str) -> str:
    """Return a method's title in tables and figures, or its name if the method no longer exists."""
    preset = known(name)
    return (preset.title or preset.kind.title) if preset else name


def known(name: str) -> Preset | None:
    """Return what `find` returns, or None if the method no longer exists."""
    try:
        return find(name)
    except InputError:
        return None


def compared(one_architecture: bool) -> tuple[str, ...]:
    """Return the methods of a comparison in order: KT-pFL first, local-only training last."""
    registry = ONE_ARCHITECTURE if one_architecture else ANY_ARCHITECTURES
    others = [name for name, preset in registry.items() if preset.compared and name != "local"]
    return (*others, "local")


def slug(name: str) -> str:
    """Return a method's name in letters, digits and underscores: ``my_package_my_method_Nearest`` for a dotted path."""
    return re.sub(r"\W", "_", name)
