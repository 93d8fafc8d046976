"""Models for texts as token ids. Each model embeds the ids, ignores padding, and ends in a linear layer.

The embeddings of padding are zero, and padding is excluded from means, maxima and attention. In a text that consists of
padding only, all tokens count, so that no value is undefined.
"""

import torch
from torch import Tensor, nn

from ktpfl_pipeline.core.dataset import Shape, TokenShape
from ktpfl_pipeline.models import shapes

EMBEDDING = 32
"""The dimension of token embeddings."""


def fasttext(shape: Shape, classes: int) -> nn.Module:
    """Return a linear layer on the mean of the tokens' embeddings.

    A. Joulin, E. Grave, P. Bojanowski, T. Mikolov, "Bag of Tricks for Efficient Text Classification", EACL 2017; here
    without n-grams and without hierarchical softmax. Parameters for a vocabulary of 64 and 64 classes: 4,160.
    """
    return nn.Sequential(MeanOfTokens(shapes.tokens("fasttext", shape)), nn.Linear(EMBEDDING, classes))


def text_cnn(shape: Shape, classes: int) -> nn.Module:
    """Return convolutions of widths 3, 4 and 5, 32 channels each, with ReLU, maxima over the text, and a linear layer.

    Y. Kim, "Convolutional Neural Networks for Sentence Classification", EMNLP 2014; here without dropout. Parameters
    for a vocabulary of 64 and 64 classes: 20,640.
    """
    return nn.Sequential(Convolutions(shapes.tokens("text_cnn", shape), 32), nn.Linear(3 * 32, classes))


def text_gru(shape: Shape, classes: int) -> nn.Module:
    """Return a layer of 64 gated recurrent units, and a linear layer on the state after the last token.

    K. Cho et al., "Learning Phrase Representations using RNN Encoder-Decoder for Statistical Machine Translation",
    EMNLP 2014. Parameters for a vocabulary of 64 and 64 classes: 25,024.
    """
    return nn.Sequential(Recurrent(shapes.tokens("text_gru", shape), nn.GRU, 64), nn.Linear(64, classes))


def text_lstm(shape: Shape, classes: int) -> nn.Module:
    """Return a layer of 64 long short-term memory units, and a linear layer on the state after the last token.

    S. Hochreiter, J. Schmidhuber, "Long Short-Term Memory", Neural Computation, 1997. LEAF's model for Shakespeare has
    two layers of 256 units and embeddings of dimension 8. Parameters for a vocabulary of 64 and 64 classes: 31,296.
    """
    return nn.Sequential(Recurrent(shapes.tokens("text_lstm", shape), nn.LSTM, 64), nn.Linear(64, classes))


def text_transformer(shape: Shape, classes: int) -> nn.Module:
    """Return a Transformer encoder of two blocks with 4 heads, and a linear layer on the output of the last token.

    A. Vaswani et al., "Attention Is All You Need", NeurIPS 2017; here with pre-layer normalization (R. Xiong et al.,
    "On Layer Normalization in the Transformer Architecture", ICML 2020), learned positions and no dropout. Parameters
    for a vocabulary of 64, 64 classes and texts of 80 tokens: 23,872.
    """
    return nn.Sequential(Encoder(shapes.tokens("text_transformer", shape), 2, 4), nn.Linear(EMBEDDING, classes))


class Embedded(nn.Module):
    """An embedding layer that also returns a mask of the tokens that are not padding."""

    def __init__(self, shape: TokenShape) -> None:
        super().__init__()
        self.padding = shape.padding
        self.embedding = nn.Embedding(shape.vocabulary, EMBEDDING)

    def forward(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        """Return the embeddings of ids, (n, L, 32), zero for padding, and the mask of `counting`, (n, L) bool."""
        embedded: Tensor = self.embedding(ids)
        counted = counting(ids, self.padding)
        return embedded * counted.unsqueeze(2).to(embedded.dtype), counted


def counting(ids: Tensor, padding: int | None) -> Tensor:
    """Return a mask, (n, L) bool, of the tokens in texts, (n, L), that are not padding; all true if all are padding."""
    if padding is None:
        return torch.ones_like(ids, dtype=torch.bool)
    counted = ids.ne(padding)
    return counted | ~counted.any(dim=1, keepdim=True)


def last(values: Tensor, counted: Tensor) -> Tensor:
    """Return the values of the last token of each text for which `counted` is true: (n, L, d) to (n, d)."""
    places = torch.arange(counted.shape[1], device=counted.device)
    place = (counted * places).amax(dim=1)  # (n,)
    return values[torch.arange(len(values), device=values.device), place]


class MeanOfTokens(nn.Module):
    """The mean of the embeddings of a text's tokens."""

    def __init__(self, shape: TokenShape) -> None:
        super().__init__()
        self.embedded = Embedded(shape)

    def forward(self, ids: Tensor) -> Tensor:
        """Return the mean embeddings, (n, 32), of texts, (n, L)."""
        embedded, counted = self.embedded(ids)
        mean: Tensor = embedded.sum(dim=1) / counted.sum(dim=1, keepdim=True).to(embedded.dtype)
        return mean


class Convolutions(nn.Module):
    """Convolutions of several widths, and the maximum of each channel over the text."""

    def __init__(self, shape: TokenShape, filters: int) -> None:
        super().__init__()
        self.embedded = Embedded(shape)
        self.convolutions = nn.ModuleList(
            nn.Conv1d(EMBEDDING, filters, width, padding=width - 1) for width in (3, 4, 5)
        )

    def forward(self, ids: Tensor) -> Tensor:
        """Return the maxima, (n, 3 · filters), for texts, (n, L). Windows may start before the text; zeros pad it."""
        embedded, counted = self.embedded(ids)
        series, kept = embedded.transpose(1, 2), counted.unsqueeze(1).to(embedded.dtype)
        found = [torch.relu(each(series)[:, :, : ids.shape[1]]) * kept for each in self.convolutions]
        return torch.cat([each.amax(dim=2) for each in found], dim=1)


class Recurrent(nn.Module):
    """Recurrent units, and their states after the last token of a text."""

    def __init__(self, shape: TokenShape, kind: type[nn.GRU | nn.LSTM], units: int) -> None:
        super().__init__()
        self.embedded = Embedded(shape)
        self.units = kind(EMBEDDING, units, batch_first=True)

    def forward(self, ids: Tensor) -> Tensor:
        """Return the states after the last token that is not padding, (n, units), for texts, (n, L)."""
        embedded, counted = self.embedded(ids)
        return last(self.units(embedded)[0], counted)


class Encoder(nn.Module):
    """A small Transformer encoder with learned positions."""

    def __init__(self, shape: TokenShape, blocks: int, heads: int) -> None:
        super().__init__()
        self.embedded = Embedded(shape)
        self.positions = nn.Embedding(shape[0], EMBEDDING)
        self.blocks = nn.ModuleList(Block(heads) for _ in range(blocks))
        self.norm = nn.LayerNorm(EMBEDDING)

    def forward(self, ids: Tensor) -> Tensor:
        """Return the outputs for the last token that is not padding, (n, 32), for texts, (n, L)."""
        embedded, counted = self.embedded(ids)
        places = torch.arange(ids.shape[1], device=ids.device).expand(ids.shape)  # per text, for DP-SGD
        values = embedded + self.positions(places)
        for block in self.blocks:
            values = block(values, counted)
        normed: Tensor = self.norm(last(values, counted))
        return normed


class Block(nn.Module):
    """A Transformer block: self-attention without padding, and a feed-forward network, both with residual connections.

    Attention is written as matrix products, so that it is counted as work and computed in the requested precision, as
    in other models.
    """

    def __init__(self, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.before, self.between = nn.LayerNorm(EMBEDDING), nn.LayerNorm(EMBEDDING)
        self.projected, self.joined = nn.Linear(EMBEDDING, 3 * EMBEDDING), nn.Linear(EMBEDDING, EMBEDDING)
        self.wide, self.narrow = nn.Linear(EMBEDDING, 2 * EMBEDDING), nn.Linear(2 * EMBEDDING, EMBEDDING)

    def forward(self, values: Tensor, counted: Tensor) -> Tensor:
        """Return values of the same shape, (n, L, 32). Attention is restricted to tokens in `counted`, (n, L) bool."""
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
