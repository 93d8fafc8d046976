"""The groups of settings that data sources read. Importing this module does not import torch."""

from dataclasses import dataclass

from ktpfl_pipeline.core.validation import Count

AUTO = "auto"
"""The tokenizer that depends on the labels of the texts."""


@dataclass(frozen=True)
class Text:
    """How the texts of ``text:<file.csv>`` and ``leaf:<path>`` become tokens; see `data.sources.tokens`.

    Attributes:
        tokenizer: ``words``; ``characters``; the tokenizer.json of a model; ``auto``: characters if the label of a text
            is its next character, else words.
        vocabulary: how many words or characters models know: the most frequent ones of the training texts. A tokenizer
            file keeps its own vocabulary.
        length: tokens per text; longer texts are cut and shorter ones padded. null: the length of the longest text.
    """

    tokenizer: str = AUTO
    vocabulary: Count = 10_000
    length: Count | None = None
