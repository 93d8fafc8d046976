"""The groups of settings that data sources read. Importing this module does not import torch."""

from dataclasses import dataclass
from typing import Annotated, Literal

from annotated_types import Ge, Gt, Le

from ktpfl_pipeline.core.validation import Count, Natural, Part, Positive, Share

AUTO = "auto"
"""The tokenizer that depends on the labels of the texts."""


@dataclass(frozen=True)
class Text:
    """How the texts of ``text:<file.csv>`` and ``leaf:<path>`` become tokens; see `data.sources.tokens`.

    Attributes:
        tokenizer: ``words``; ``characters``; the tokenizer.json of a model; ``auto``: characters if the label of a text
            is its next character, else words. Public texts are read as the private ones.
        vocabulary: how many words or characters models know: the most frequent ones of the training texts. A tokenizer
            file keeps its own vocabulary.
        length: tokens per text; longer texts are cut and shorter ones padded. null: the length of the longest text.
    """

    tokenizer: str = AUTO
    vocabulary: Count = 10_000
    length: Count | None = None


@dataclass(frozen=True)
class Partition:
    """How the private samples are distributed among the clients.

    Attributes:
        scheme: ``two_labels``, ``all_labels`` (the two of the paper), ``lognormal``, ``k_labels``, ``dirichlet``,
            ``shards``, ``quantity``, ``iid``; ``natural`` keeps the owners that the source names.
        alpha: α of ``dirichlet`` and ``quantity``: the smaller, the more skewed.
        balanced: whether all clients get the same number of samples; only with ``dirichlet``.
        labels_per_client: labels per client; only with ``k_labels``.
        shards_per_client: shards per client; only with ``shards``.
        sigma: σ of ``lognormal``: the larger, the more clients differ in their number of samples of a class.
        minimum: the smallest number of samples per client; ``natural`` leaves out owners with fewer.
        feature_skew: ``none``; or ``rotation``, ``blur``, ``color``, ``noise``, which client n gets at level n mod
            `feature_levels`; level 0 and the public set are unchanged.
        feature_levels: levels of `feature_skew`.
        test_share: the share of each client's samples for testing, with the client's own label distribution.
        validation_share: the share of the other samples for validation, on which no method trains. FedFomo and
            KT-pFL (likelihood) weigh models with it.
    """

    scheme: str = "dirichlet"
    alpha: Positive = 0.5
    balanced: bool = False
    labels_per_client: Count = 2
    shards_per_client: Count = 2
    sigma: Annotated[float, Gt(0), Le(20)] = 2.0  # with 100 clients one has all of a class long before
    minimum: Natural = 0
    feature_skew: Literal["none", "rotation", "blur", "color", "noise"] = "none"
    feature_levels: Annotated[int, Ge(2), Le(360)] = 4
    test_share: Share = 0.25
    validation_share: Part = 0.1
