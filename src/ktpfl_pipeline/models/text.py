"""Models for texts in tokens: each embeds the ids, passes over the padding, and ends in a linear layer.

Ids of padding count nothing: their embeddings are zero, and they take part in no mean, maximum or attention. A text of
padding only is treated as one whose tokens are all known, so that no number is undefined.
"""

import torch
from torch import Tensor, nn

from ktpfl_pipeline.core.dataset import Shape, TokenShape
from ktpfl_pipeline.models import shapes

EMBEDDING = 32
"""Numbers in the embedding of a token."""


def fasttext(shape: Shape, classes: int) -> nn.Module:
    """Return the mean of the tokens' embeddings, 32 numbers, and a linear layer.

    A. Joulin, E. Grave, P. Bojanowski, T. Mikolov, "Bag of Tricks for Efficient Text Classification", EACL 2017,
    without n-grams and with a plain softmax. With 64 tokens and 64 classes: 4,160 parameters.
    """
    return nn.Sequential(MeanOfTokens(shapes.tokens("fasttext", shape)), nn.Linear(EMBEDDING, classes))


def text_cnn(shape: Shape, classes: int) -> nn.Module:
    """Return convolutions over 3, 4 and 5 tokens, 32 of each, with ReLU, the maximum over the text, and a linear layer.

    Y. Kim, "Convolutional Neural Networks for Sentence Classification", EMNLP 2014; without its dropout. With 64 tokens
    and 64 classes: 20,640 parameters.
    """
    return nn.Sequential(Convolutions(shapes.tokens("text_cnn", shape), 32), nn.Linear(3 * 32, classes))


def text_gru(shape: Shape, classes: int) -> nn.Module:
    """Return one layer of 64 gated recurrent units over the embeddings, the last token's state, and a linear layer.

    K. Cho et al., "Learning Phrase Representations using RNN Encoder-Decoder for Statistical Machine Translation",
    EMNLP 2014. With 64 tokens and 64 classes: 25,024 parameters.
    """
    return nn.Sequential(Recurrent(shapes.tokens("text_gru", shape), nn.GRU, 64), nn.Linear(64, classes))


def text_lstm(shape: Shape, classes: int) -> nn.Module:
    """Return one layer of 64 long short-term memory units, the last token's state, and a linear layer.

    S. Hochreiter, J. Schmidhuber, "Long Short-Term Memory", Neural Computation, 1997; LEAF's model for Shakespeare has
    two layers of 256 over embeddings of 8. With 64 tokens and 64 classes: 31,296 parameters.
    """
    return nn.Sequential(Recurrent(shapes.tokens("text_lstm", shape), nn.LSTM, 64), nn.Linear(64, classes))


def text_transformer(shape: Shape, classes: int) -> nn.Module:
    """Return two encoder blocks of 4 heads over embeddings and positions, the last token's output, and a linear layer.

    A. Vaswani et al., "Attention Is All You Need", NeurIPS 2017, with the normalization before each part (R. Xiong et
    al., "On Layer Normalization in the Transformer Architecture", ICML 2020), learned positions and no dropout. With 64
    tokens, 64 classes and texts of 80: 23,872 parameters.
    """
    return nn.Sequential(Encoder(shapes.tokens("text_transformer", shape), 2, 4), nn.Linear(EMBEDDING, classes))


class Embedded(nn.Module):
    """The embeddings of tokens, and which tokens are not padding."""

    def __init__(self, shape: TokenShape) -> None:
        super().__init__()
        self.padding = shape.padding
        self.embedding = nn.Embedding(shape.vocabulary, EMBEDDING)

    def forward(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        """Return embeddings, (n, L, 32), zero for padding, and which tokens are not padding, (n, L) bool."""
        embedded: Tensor = self.embedding(ids)
        counted = counting(ids, self.padding)
        return embedded * counted.unsqueeze(2).to(embedded.dtype), counted


def counting(ids: Tensor, padding: int | None) -> Tensor:
    """Return which tokens of texts, (n, L), are not padding, (n, L) bool; all of a text of padding only."""
    if padding is None:
        return torch.ones_like(ids, dtype=torch.bool)
    counted = ids.ne(padding)
    return counted | ~counted.any(dim=1, keepdim=True)


def last(values: Tensor, counted: Tensor) -> Tensor:
    """Return the values, (n, L, d), of the last token that counts of each text, (n, d)."""
    places = torch.arange(counted.shape[1], device=counted.device)
    place = (counted * places).amax(dim=1)  # (n,)
    return values[torch.arange(len(values), device=values.device), place]


class MeanOfTokens(nn.Module):
    """The mean of the embeddings of a text."""

    def __init__(self, shape: TokenShape) -> None:
        super().__init__()
        self.embedded = Embedded(shape)

    def forward(self, ids: Tensor) -> Tensor:
        """Return the means, (n, 32), of texts (n, L)."""
        embedded, counted = self.embedded(ids)
        mean: Tensor = embedded.sum(dim=1) / counted.sum(dim=1, keepdim=True).to(embedded.dtype)
        return mean


class Convolutions(nn.Module):
    """Convolutions over several tokens, and the maximum of each over the text."""

    def __init__(self, shape: TokenShape, filters: int) -> None:
        super().__init__()
        self.embedded = Embedded(shape)
        self.convolutions = nn.ModuleList(
            nn.Conv1d(EMBEDDING, filters, width, padding=width - 1) for width in (3, 4, 5)
        )

    def forward(self, ids: Tensor) -> Tensor:
        """Return the maxima, (n, 3 · filters), of texts (n, L); a window may reach over both ends of its text."""
        embedded, counted = self.embedded(ids)
        series, kept = embedded.transpose(1, 2), counted.unsqueeze(1).to(embedded.dtype)
        found = [torch.relu(each(series)[:, :, : ids.shape[1]]) * kept for each in self.convolutions]
        return torch.cat([each.amax(dim=2) for each in found], dim=1)


class Recurrent(nn.Module):
    """Recurrent units along a text."""

    def __init__(self, shape: TokenShape, kind: type[nn.GRU | nn.LSTM], units: int) -> None:
        super().__init__()
        self.embedded = Embedded(shape)
        self.units = kind(EMBEDDING, units, batch_first=True)

    def forward(self, ids: Tensor) -> Tensor:
        """Return the units' states after the last token that counts, (n, units), of texts (n, L)."""
        embedded, counted = self.embedded(ids)
        return last(self.units(embedded)[0], counted)


class Encoder(nn.Module):
    """A small Transformer encoder."""

    def __init__(self, shape: TokenShape, blocks: int, heads: int) -> None:
        super().__init__()
        self.embedded = Embedded(shape)
        self.positions = nn.Embedding(shape[0], EMBEDDING)
        self.blocks = nn.ModuleList(Block(heads) for _ in range(blocks))
        self.norm = nn.LayerNorm(EMBEDDING)

    def forward(self, ids: Tensor) -> Tensor:
        """Return the outputs of the last token that counts, (n, 32), of texts (n, L)."""
        embedded, counted = self.embedded(ids)
        places = torch.arange(ids.shape[1], device=ids.device).expand(ids.shape)  # of each text, for DP-SGD
        values = embedded + self.positions(places)
        for block in self.blocks:
            values = block(values, counted)
        normed: Tensor = self.norm(last(values, counted))
        return normed


class Block(nn.Module):
    """A Transformer block: self-attention that ignores padding, and a layer per token, both with a residual connection.

    The matrix products are written out, so that they are counted as work and computed in the requested precision, as in
    other models.
    """

    def __init__(self, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.before, self.between = nn.LayerNorm(EMBEDDING), nn.LayerNorm(EMBEDDING)
        self.projected, self.joined = nn.Linear(EMBEDDING, 3 * EMBEDDING), nn.Linear(EMBEDDING, EMBEDDING)
        self.wide, self.narrow = nn.Linear(EMBEDDING, 2 * EMBEDDING), nn.Linear(2 * EMBEDDING, EMBEDDING)

    def forward(self, values: Tensor, counted: Tensor) -> Tensor:
        """Return (n, L, 32) of (n, L, 32); `counted`, (n, L) bool, are the tokens that may be attended to."""
        number, length, width = values.shape
        each = width // self.heads
        parts = self.projected(self.before(values)).view(number, length, 3, self.heads, each)
        asked, offered, carried = parts.permute(2, 0, 3, 1, 4)  # (n, heads, L, width / heads) each
        fit = torch.matmul(asked, offered.transpose(2, 3)) / each**0.5
        fit = fit.masked_fill(~counted[:, None, None, :], torch.finfo(fit.dtype).min)
        mixed = torch.matmul(fit.softmax(dim=3), carried)  # (n, heads, L, width / heads)
        values = values + self.joined(mixed.transpose(1, 2).reshape(number, length, width))
        added: Tensor = values + self.narrow(torch.relu(self.wide(self.between(values))))
        return added
