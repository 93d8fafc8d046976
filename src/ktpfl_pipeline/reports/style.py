"""How methods, architectures and labels look in every figure: colours, markers, titles.

Nothing that draws is imported here: a run needs interactive figures before it trains, and matplotlib after it.
"""

from typing import NamedTuple

from ktpfl_pipeline.methods import METHODS, ONE_ARCHITECTURE

INK, MUTED, RULE, PAPER, NEUTRAL, BLUE = "#1f2430", "#667085", "#d8dce3", "#ffffff", "#545b68", "#0072b2"
GREEN, VERMILION, GREY = "#009e73", "#d55e00", "#8a94a6"
ON_DARK, ON_LIGHT = "#fefefe", "#010101"
"""Text on a dark and on a light colour."""

NAMED = 30
"""Clients up to which each is named on an axis."""


class Look(NamedTuple):
    """How a method is drawn, everywhere."""

    colour: str
    marker: str


# In the registry's order. The two are seldom in one figure: the second has colours of the first, with other markers.
_ANY_ARCHITECTURE = (
    *(Look(BLUE, "o"), Look("#332288", "s"), Look("#56b4e9", "v"), Look("#cc79a7", "^"), Look(GREEN, "s")),
    *(Look("#117733", "d"), Look(VERMILION, "D"), Look("#e69f00", "X"), Look("#999933", "p"), Look("#882255", "h")),
    *(Look("#aa4499", "*"), Look("#44aa99", "P"), Look("#661100", "<"), Look("#ee8866", ">")),
)
_ONE_ARCHITECTURE = (
    *(Look(BLUE, "D"), Look(VERMILION, "o"), Look("#e69f00", "s"), Look("#117733", "^"), Look("#117733", "v")),
    *(Look("#882255", "p"), Look(GREEN, "P"), Look("#44aa99", "8"), Look("#aa4499", "s"), Look("#661100", "h")),
    *(Look("#cc79a7", "d"), Look("#56b4e9", ">"), Look("#332288", "<")),
)
SHIFT = 10
"""Places by which markers move where colours come again."""
_LOCAL = {"local": Look(NEUTRAL, "o"), "local_matched": Look(NEUTRAL, "s"), "local_5x": Look(NEUTRAL, "D")}
_SPARE = ("#222222", "#bb5566", "#004488", "#8b6914", "#6b8e23", "#7f7f7f", "#5d3a9b")
_SPARE_MARKERS = ("o", "s", "D", "v", "^", "P", "X", "h")  # coprime to the colours: 56 looks

_LABELS = (
    *("#332288", "#88ccee", "#44aa99", "#117733", "#999933"),
    *("#ddcc77", "#cc6677", "#882255", "#aa4499", "#bbbbbb"),
)
_ARCHITECTURES = {
    **{"lenet": "LeNet", "alexnet": "AlexNet", "resnet18": "ResNet-18", "shufflenet_v2": "ShuffleNetV2"},
    **{
        "mcmahan_cnn": "McMahan CNN",
        "mlp": "MLP",
        "cnn": "CNN",
        "cnn_bn": "CNN with BN",
        "cnn1d": "1-D CNN",
        "gru": "GRU",
    },
}


def look(method: str) -> Look:
    """Return the colour and marker of a method: by its place in the registry, or a spare one if it has none there.

    Beyond a palette its colours come again, with the markers of others.
    """
    if method in _LOCAL:
        return _LOCAL[method]
    kinds = {name: name in ONE_ARCHITECTURE for name in METHODS if name not in _LOCAL}  # in order
    palette = _ONE_ARCHITECTURE if kinds.get(method) else _ANY_ARCHITECTURE
    alike = [name for name in kinds if kinds[name] == kinds.get(method)]
    if method not in alike:
        place = sum(method.encode())
        return Look(_SPARE[place % len(_SPARE)], _SPARE_MARKERS[place % len(_SPARE_MARKERS)])
    again, place = divmod(alike.index(method), len(palette))
    return Look(palette[place].colour, palette[(place + SHIFT * again) % len(palette)].marker)


def readable(colour: str) -> str:
    """Return a colour, darkened until text in it has a contrast of 4.5 to 1 on white."""
    for shade in range(100, -1, -5):
        parts = [int(colour[place : place + 2], 16) * shade / 100 for place in (1, 3, 5)]
        linear = [(part / 255 / 12.92 if part <= 10 else ((part / 255 + 0.055) / 1.055) ** 2.4) for part in parts]
        if 1.05 / (0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2] + 0.05) >= 4.5:
            break
    return "#" + "".join(f"{round(part):02x}" for part in parts)


def architecture_title(architecture: str) -> str:
    """Return what an architecture is called in figures, without the library or package that it comes from."""
    return _ARCHITECTURES.get(architecture, architecture.rpartition(":")[2])


def label_colours(classes: int) -> list[str]:
    """Return the colours of labels: ten that are told apart, or a scale where there are more."""
    if classes <= len(_LABELS):
        return list(_LABELS[:classes])
    import matplotlib as mpl

    return [mpl.colors.to_hex(mpl.colormaps["viridis"](label / (classes - 1))) for label in range(classes)]
