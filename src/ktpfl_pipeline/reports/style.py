"""How methods, architectures and labels look in every figure: colours, markers, titles.

Nothing that draws is imported here: the catalog is read with `FIGURE_FILES` before anything is drawn.
"""

from collections.abc import Iterable
from typing import NamedTuple

from ktpfl_pipeline.core.errors import InputError

INK, MUTED, RULE, PAPER, NEUTRAL, BLUE = "#1f2430", "#667085", "#d8dce3", "#ffffff", "#545b68", "#0072b2"
GREEN, VERMILION, GREY = "#009e73", "#d55e00", "#8a94a6"
ON_DARK, ON_LIGHT = "#fefefe", "#010101"
"""Text on a dark and on a light colour."""

NAMED = 30
"""Clients up to which each is named on an axis."""

FIGURE_FILES = ("png", "pdf")
"""Kinds of figure files besides SVG. They are written where they are asked for: they take half of a report's time."""


class Look(NamedTuple):
    """The color and marker of a method in all figures."""

    colour: str
    marker: str


# Fixed for each method, so that a new method changes the colour of no other one. `BLUE` is that of KT-pFL's two forms,
# of which a comparison holds one. Methods that are seldom in one figure may share a colour, with another marker.
_LOOKS = {
    "kt_pfl": Look(BLUE, "o"),
    "kt_pfl_joint": Look("#332288", "s"),
    "kt_pfl_likelihood": Look("#56b4e9", "v"),
    "kt_pfl_paper_literal": Look("#cc79a7", "^"),
    "kt_pfl_authors": Look(GREEN, "s"),
    "sim_pfl": Look("#117733", "d"),
    "topk_pfl": Look(VERMILION, "D"),
    "fedmd": Look("#e69f00", "X"),
    "feddf": Look("#999933", "p"),
    "feddf_soft": Look("#882255", "h"),
    "pfeddf": Look("#aa4499", "*"),
    "ds_fl": Look("#44aa99", "P"),
    "comet": Look("#661100", "<"),
    "fd": Look("#ee8866", ">"),
    "fedproto": Look("#a6761d", "*"),
    "fedtgp": Look("#332288", "P"),
    "lg_fedavg": Look("#56b4e9", "<"),
    "fedgh": Look("#cc79a7", ">"),
    "fedgen": Look(GREEN, "o"),
    "fml": Look("#117733", "s"),
    "fedkd": Look(VERMILION, "v"),
    "fedmrl": Look("#e69f00", "^"),
    "local": Look(NEUTRAL, "o"),
    "scarlet": Look("#999933", "s"),
    "selective_fd": Look("#882255", "d"),
    "local_matched": Look(NEUTRAL, "s"),
    "kt_pfl_params": Look(BLUE, "D"),
    "fedavg": Look(VERMILION, "o"),
    "fedavg_ft": Look("#e69f00", "s"),
    "per_fedavg": Look("#117733", "^"),
    "per_fedavg_hf": Look("#117733", "v"),
    "pfedme": Look("#882255", "p"),
    "fedamp": Look(GREEN, "P"),
    "heur_fedamp": Look("#44aa99", "8"),
    "fedfomo": Look("#aa4499", "s"),
    "pfedhn": Look("#661100", "h"),
    "ditto": Look("#cc79a7", "d"),
    "fedrep": Look("#56b4e9", ">"),
    "apple": Look("#332288", "<"),
    "fedper": Look("#a6761d", "d"),
    "fedbn": Look(VERMILION, ">"),
    "fedbabu": Look("#e69f00", "<"),
    "apfl": Look("#117733", "D"),
    "fedala": Look("#117733", "o"),
    "fedrod": Look("#882255", "s"),
    "pfedgraph": Look(GREEN, "^"),
    "local_5x": Look(NEUTRAL, "D"),
}
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
        "fasttext": "fastText",
        "text_cnn": "text CNN",
        "text_gru": "text GRU",
        "text_lstm": "text LSTM",
        "text_transformer": "Transformer",
    },
}


def check_kinds(kinds: Iterable[str]) -> None:
    """Check that all are `FIGURE_FILES`.

    Raises:
        InputError: if one is not.
    """
    if unknown := [kind for kind in kinds if kind not in FIGURE_FILES]:
        raise InputError(f"figures of a report: {unknown[0]!r} is unknown; choose from {', '.join(FIGURE_FILES)}.")


def look(method: str) -> Look:
    """Return the colour and marker of a method; a method outside the registry gets a spare one by its name."""
    if method in _LOOKS:
        return _LOOKS[method]
    place = sum(method.encode())
    return Look(_SPARE[place % len(_SPARE)], _SPARE_MARKERS[place % len(_SPARE_MARKERS)])


def readable(colour: str) -> str:
    """Return a colour, darkened until text in it has a contrast of 4.5 to 1 on white."""
    for shade in range(100, -1, -5):
        parts = [int(colour[place : place + 2], 16) * shade / 100 for place in (1, 3, 5)]
        linear = [(part / 255 / 12.92 if part <= 10 else ((part / 255 + 0.055) / 1.055) ** 2.4) for part in parts]
        if 1.05 / (0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2] + 0.05) >= 4.5:
            break
    return "#" + "".join(f"{round(part):02x}" for part in parts)


def architecture_title(architecture: str) -> str:
    """Return the name of an architecture in figures, without its library or package."""
    return _ARCHITECTURES.get(architecture, architecture.rpartition(":")[2])


def label_colours(classes: int) -> list[str]:
    """Return the colours of labels: ten that can be distinguished, or a scale where there are more."""
    if classes <= len(_LABELS):
        return list(_LABELS[:classes])
    import matplotlib as mpl

    return [mpl.colors.to_hex(mpl.colormaps["viridis"](label / (classes - 1))) for label in range(classes)]
