"""How methods, architectures and labels look in every figure: colours, markers, titles.

Nothing that draws is imported here: a run needs interactive figures before it trains, and matplotlib after it.
"""

from typing import NamedTuple

from ktpfl_pipeline.methods import METHODS

INK, MUTED, RULE, PAPER, NEUTRAL, BLUE = "#1f2430", "#667085", "#d8dce3", "#ffffff", "#545b68", "#0072b2"

NAMED = 30
"""Clients up to which each is named on an axis."""


class Look(NamedTuple):
    """How a method is drawn, everywhere."""

    colour: str
    marker: str


LOOKS = {
    "kt_pfl": Look(BLUE, "o"),
    "kt_pfl_likelihood": Look("#332288", "s"),
    "kt_pfl_paper_literal": Look("#56b4e9", "v"),
    "kt_pfl_authors": Look("#cc79a7", "^"),
    "sim_pfl": Look("#009e73", "s"),
    "topk_pfl": Look("#117733", "d"),
    "fedmd": Look("#d55e00", "D"),
    "feddf": Look("#e69f00", "X"),
    "feddf_soft": Look("#999933", "p"),
    "pfeddf": Look("#882255", "h"),
    "ds_fl": Look("#aa4499", "*"),
    "comet": Look("#44aa99", "P"),
    "fedproto": Look("#661100", "<"),
    "fml": Look("#ee8866", ">"),
    "local": Look(NEUTRAL, "o"),
    # Seldom in one figure with those above: the same colours, with other markers.
    "kt_pfl_params": Look(BLUE, "D"),
    "fedavg": Look("#d55e00", "o"),
    "fedavg_ft": Look("#e69f00", "s"),
    "per_fedavg": Look("#117733", "^"),
    "per_fedavg_hf": Look("#117733", "v"),
    "pfedme": Look("#882255", "p"),
    "fedamp": Look("#009e73", "P"),
    "heur_fedamp": Look("#44aa99", "X"),
    "fedfomo": Look("#aa4499", "s"),
    "pfedhn": Look("#661100", "h"),
    "ditto": Look("#cc79a7", "d"),
    "fedrep": Look("#56b4e9", ">"),
    "apple": Look("#332288", "<"),
}
_SPARE = ("#000000", "#bb5566", "#004488", "#8b6914", "#6b8e23", "#7f7f7f", "#5d3a9b")
_SPARE_MARKERS = ("o", "s", "D", "v", "^", "P", "X", "h")  # coprime to the colours: 56 looks

_LABELS = (
    *("#332288", "#88ccee", "#44aa99", "#117733", "#999933"),
    *("#ddcc77", "#cc6677", "#882255", "#aa4499", "#bbbbbb"),
)
_ARCHITECTURES = {
    "lenet": "LeNet",
    "alexnet": "AlexNet",
    "resnet18": "ResNet-18",
    "shufflenet_v2": "ShuffleNetV2",
    "mcmahan_cnn": "McMahan CNN",
    "mlp": "MLP",
    "cnn": "CNN",
    "cnn_bn": "CNN with BN",
}


def look(method: str) -> Look:
    """Return the colour and marker of a method; one without its own takes a spare, by its place in the registry."""
    if method in LOOKS:
        return LOOKS[method]
    others = [name for name in METHODS if name not in LOOKS]
    place = others.index(method) if method in others else len(others)
    return Look(_SPARE[place % len(_SPARE)], _SPARE_MARKERS[place % len(_SPARE_MARKERS)])


def architecture_title(architecture: str) -> str:
    """Return what an architecture is called in figures."""
    return _ARCHITECTURES.get(architecture, architecture)


def label_colours(classes: int) -> list[str]:
    """Return the colours of labels: ten that are told apart, or a scale where there are more."""
    if classes <= len(_LABELS):
        return list(_LABELS[:classes])
    import matplotlib as mpl

    return [mpl.colors.to_hex(mpl.colormaps["viridis"](place)) for place in [n / (classes - 1) for n in range(classes)]]
