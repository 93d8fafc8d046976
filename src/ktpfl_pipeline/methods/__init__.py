"""One file per method, and the registry: a new method is one file and one line here."""

import re
from collections.abc import Callable, Mapping
from dataclasses import fields
from functools import partial
from typing import Any

from ktpfl_pipeline.core.errors import unknown
from ktpfl_pipeline.core.method import Method
from ktpfl_pipeline.methods.apple import APPLE
from ktpfl_pipeline.methods.comet import COMET
from ktpfl_pipeline.methods.ditto import Ditto
from ktpfl_pipeline.methods.ds_fl import DSFL
from ktpfl_pipeline.methods.fedamp import FedAMP, HeurFedAMP
from ktpfl_pipeline.methods.fedavg import FedAvg, FedAvgFT
from ktpfl_pipeline.methods.feddf import FedDF, FedDFSoft, PFedDF
from ktpfl_pipeline.methods.fedfomo import FedFomo
from ktpfl_pipeline.methods.fedmd import FedMD
from ktpfl_pipeline.methods.fedproto import FedProto
from ktpfl_pipeline.methods.fedrep import FedRep
from ktpfl_pipeline.methods.fml import FML
from ktpfl_pipeline.methods.kt_pfl import KTpFL
from ktpfl_pipeline.methods.kt_pfl_params import KTpFLParams
from ktpfl_pipeline.methods.local import Local
from ktpfl_pipeline.methods.per_fedavg import PerFedAvg
from ktpfl_pipeline.methods.pfedhn import PFedHN
from ktpfl_pipeline.methods.pfedme import PFedMe
from ktpfl_pipeline.methods.sim_pfl import SimPFL, TopKPFL

METHODS: dict[str, Callable[..., Method[Any]]] = {
    "kt_pfl": KTpFL,
    # Coefficients fitted to the clients' validation labels.
    "kt_pfl_likelihood": partial(KTpFL, objective="likelihood"),
    # The paper's Eq. (8) with its constants and the least repair, a projection.
    "kt_pfl_paper_literal": partial(KTpFL, update="pgd", step=0.01, steps=1, rho=0.7, divergence_weight=1.0),
    # The update of the authors' released code, which also takes it before mixing.
    "kt_pfl_authors": partial(KTpFL, update="authors", step=1.0, steps=1, rho=0.7, order="coefficients_first"),
    "sim_pfl": SimPFL,
    "topk_pfl": TopKPFL,
    "fedmd": FedMD,
    "feddf": FedDF,
    "feddf_soft": FedDFSoft,
    "pfeddf": PFedDF,
    "ds_fl": DSFL,
    "comet": COMET,
    "fedproto": FedProto,
    "fml": FML,
    "local": Local,
    # Knowledge is parameters: all clients have one architecture.
    "kt_pfl_params": KTpFLParams,
    "fedavg": FedAvg,
    "fedavg_ft": FedAvgFT,
    "per_fedavg": PerFedAvg,
    # The Hessian-free version.
    "per_fedavg_hf": partial(PerFedAvg, hessian=True),
    "pfedme": PFedMe,
    "fedamp": FedAMP,
    "heur_fedamp": HeurFedAMP,
    "fedfomo": FedFomo,
    "pfedhn": PFedHN,
    "ditto": Ditto,
    "fedrep": FedRep,
    "apple": APPLE,
}

ON_PREDICTIONS = {
    *("kt_pfl", "kt_pfl_paper_literal", "kt_pfl_authors", "sim_pfl", "topk_pfl"),
    *("fedmd", "feddf_soft", "ds_fl", "comet", "local"),
}
"""Methods whose clients upload predictions and nothing else, or nothing: an adversary lies about all it sends."""

ON_TRAINING = {
    *("kt_pfl", "kt_pfl_paper_literal", "kt_pfl_authors", "sim_pfl", "topk_pfl"),
    *("fedmd", "feddf", "feddf_soft", "ds_fl", "comet", "local"),
    *("kt_pfl_params", "fedavg", "pfedhn"),
}
"""Methods that use private images in plain local training and nowhere else, so that its ε tells the whole story."""

TITLES = {
    "kt_pfl": "KT-pFL",
    "kt_pfl_likelihood": "KT-pFL (likelihood)",
    "kt_pfl_paper_literal": "KT-pFL (paper-literal)",
    "kt_pfl_authors": "KT-pFL (authors' code)",
    "sim_pfl": "Sim-pFL",
    "topk_pfl": "TopK-pFL",
    "fedmd": "FedMD",
    "feddf": "FedDF",
    "feddf_soft": "FedDF (soft)",
    "pfeddf": "pFedDF",
    "ds_fl": "DS-FL",
    "comet": "COMET",
    "fedproto": "FedProto",
    "fml": "FML",
    "local": "Local only",
    "kt_pfl_params": "KT-pFL (parameters)",
    "fedavg": "FedAvg",
    "fedavg_ft": "FedAvg + FT",
    "per_fedavg": "Per-FedAvg (FO)",
    "per_fedavg_hf": "Per-FedAvg (HF)",
    "pfedme": "pFedMe",
    "fedamp": "FedAMP",
    "heur_fedamp": "HeurFedAMP",
    "fedfomo": "FedFomo",
    "pfedhn": "pFedHN",
    "ditto": "Ditto",
    "fedrep": "FedRep",
    "apple": "APPLE",
}


def create(name: str, hyperparameters: Mapping[str, Any] | None = None) -> Method[Any]:
    """Return the method called `name` with `hyperparameters` in place of its defaults.

    Raises:
        InputError: if there is no such method or hyperparameter, or a value is out of range.
    """
    if name not in METHODS:
        raise unknown("method", name, METHODS)
    make, given = METHODS[name], hyperparameters or {}
    known = [entry.name for entry in fields(make.func if isinstance(make, partial) else make)]  # type: ignore[arg-type]
    for hyperparameter in given:
        if hyperparameter not in known:
            raise unknown(f"hyperparameter of {name}", hyperparameter, known)
    return make(**given)


def slug(name: str) -> str:
    """Return a method's name in letters, digits and underscores: ``my_package_my_method_Nearest`` for a dotted path."""
    return re.sub(r"\W+", "_", name)
