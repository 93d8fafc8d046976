"""The groups of settings that data sources read. Importing this module does not import torch."""

from dataclasses import dataclass
from typing import Annotated, Literal

from annotated_types import Ge, Gt, Le

from ktpfl_pipeline.core.validation import Count, Natural, Part, Positive, Share

AUTO = "auto"
"""The value of `Text.tokenizer` that selects a tokenizer by the labels of the texts."""


@dataclass(frozen=True)
class Text:
    """The conversion of texts from ``text:<file.csv>`` and ``leaf:<path>`` to tokens; see `data.sources.tokens`.

    Attributes:
        tokenizer: ``words``; ``characters``; the tokenizer.json of a model; or ``auto``: characters if the label of a
            text is its next character, else words. Public texts are tokenized like private texts.
        vocabulary: the number of words or characters that models know, the most frequent ones of the training texts. A
            tokenizer file has its own vocabulary.
        length: tokens per text; longer texts are cut and shorter ones padded. null: the length of the longest text.
    """

    tokenizer: str = AUTO
    vocabulary: Count = 10_000
    length: Count | None = None


@dataclass(frozen=True)
class Partition:
    """How the private samples are distributed among the clients.

    Attributes:
        scheme: ``two_labels`` or ``all_labels``, both from the paper; ``lognormal``, ``k_labels``, ``dirichlet``,
            ``shards``, ``quantity`` or ``iid``; or ``natural``, which uses the clients that the source names.
        alpha: α of ``dirichlet`` and ``quantity``; smaller values give more skew.
        balanced: whether all clients get the same number of samples; only with ``dirichlet``.
        labels_per_client: labels per client; only with ``k_labels``.
        shards_per_client: shards per client; only with ``shards``.
        sigma: σ of ``lognormal``; larger values give larger differences between clients in the samples of a class.
        minimum: the smallest number of samples per client; ``natural`` leaves out owners with fewer.
        feature_skew: ``none``, ``rotation``, ``blur``, ``color`` or ``noise``. The inputs of client n are changed at
            level n mod `feature_levels`. Level 0 and the public set are unchanged.
        feature_levels: the number of levels of `feature_skew`.
        test_share: the share of each client's samples for testing, stratified by class.
        keep_equal: whether samples with equal inputs stay on one side of every split, as samples of a group do. It is
            not used if the source has groups.
        validation_share: the share of each client's other samples for validation. No method trains models on them.
            FedFomo and KT-pFL (likelihood) use them to weight models.
    """

    scheme: str = "dirichlet"
    alpha: Positive = 0.5
    balanced: bool = False
    labels_per_client: Count = 2
    shards_per_client: Count = 2
    sigma: Annotated[float, Gt(0), Le(20)] = 2.0  # at 20, one of 100 clients gets all samples of a class
    minimum: Natural = 0
    feature_skew: Literal["none", "rotation", "blur", "color", "noise"] = "none"
    feature_levels: Annotated[int, Ge(2), Le(360)] = 4
    test_share: Share = 0.25
    validation_share: Part = 0.1
    keep_equal: bool = False
