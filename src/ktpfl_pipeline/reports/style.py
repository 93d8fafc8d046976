"""The look of methods, architectures and labels in all figures: colors, markers, titles. Also names of files.

This module does not import matplotlib, because the catalog is read with `FIGURE_FILES` before anything is drawn.
"""

from collections.abc import Iterable
from typing import NamedTuple

from ktpfl_pipeline.core.errors import InputError

INK, MUTED, RULE, PAPER, NEUTRAL, BLUE = "#1f2430", "#667085", "#d8dce3", "#ffffff", "#545b68", "#0072b2"
GREEN, VERMILION, GRAY = "#009e73", "#d55e00", "#8a94a6"
VERDICTS = {1: ("better", BLUE), 0: ("not significant", MUTED), -1: ("worse", VERMILION)}
"""The verdict on a difference to local-only by the sign of its interval, and the verdict's color."""
ON_DARK, ON_LIGHT = "#fefefe", "#010101"
"""The colors of text on a dark and on a light color."""

NAMED = 30
"""The largest number of clients for which an axis names each client."""

PAGE, MARKDOWN, BRIEF, RESULTS = "report.html", "report.md", "table.txt", "comparison.json"
"""The files of a report: the HTML page, Markdown, the text for the console, and the results for the overview."""
REMAKE = "delete its folder, or run its comparison again."
"""The advice in messages about a file `RESULTS` that cannot be used."""
FIGURE_FILES = ("png", "pdf")
"""The optional formats of figures in addition to SVG. Writing them takes half of a report's time."""


class Look(NamedTuple):
    """The color and marker of a method in all figures."""

    color: str
    marker: str


# The look of each method is fixed, so a new method does not change the colors of other methods. Both forms of KT-pFL
# have `BLUE`, because a comparison has one of them. Methods that are seldom in one figure may share a color, with
# different markers.
_LOOKS = {
    method: Look(color, marker)
    for color, methods in {
        BLUE: {"kt_pfl": "o", "kt_pfl_params": "D"},
        "#332288": {"kt_pfl_joint": "s", "fedtgp": "P", "apple": "<"},
        "#56b4e9": {"kt_pfl_likelihood": "v", "lg_fedavg": "<", "fedrep": ">"},
        "#cc79a7": {"kt_pfl_paper_literal": "^", "fedgh": ">", "ditto": "d"},
        GREEN: {"kt_pfl_authors": "s", "fedgen": "o", "fedamp": "P", "pfedgraph": "^"},
        "#117733": {"sim_pfl": "d", "fml": "s", "per_fedavg": "^", "per_fedavg_hf": "v", "apfl": "D", "fedala": "o"},
        VERMILION: {"topk_pfl": "D", "fedkd": "v", "fedavg": "o", "fedbn": ">", "fedprox": "s"},
        "#e69f00": {"fedmd": "X", "fedmrl": "^", "fedavg_ft": "s", "fedbabu": "<"},
        "#999933": {"feddf": "p", "scarlet": "s", "scaffold": "D", "fedadam": "^", "fedyogi": "v", "fedadagrad": "P"},
        "#882255": {"feddf_soft": "h", "selective_fd": "d", "pfedme": "p", "fedrod": "s"},
        "#aa4499": {"pfeddf": "*", "fedfomo": "s", "gpfl": "^"},
        "#44aa99": {"ds_fl": "P", "heur_fedamp": "8", "fedcp": "h"},
        "#661100": {"comet": "<", "pfedhn": "h", "fedpac": "d"},
        "#ee8866": {
            "fd": ">",
            "fccl": "o",
            "fccl_plus": "P",
            "rhfl": "s",
            "fedre": "v",
            "fedssa": "^",
            "fedhenn": "h",
            "fedapen": "d",
        },
        "#a6761d": {"fedproto": "*", "fedper": "d", "feddbe": "P"},
        NEUTRAL: {"local": "o", "local_matched": "s", "local_5x": "D"},
    }.items()
    for method, marker in methods.items()
}
_SPARE = ("#222222", "#bb5566", "#004488", "#8b6914", "#6b8e23", "#7f7f7f", "#5d3a9b")
_SPARE_MARKERS = ("o", "s", "D", "v", "^", "P", "X", "h")  # coprime to the colors: 56 looks

_LABELS = (
    *("#332288", "#88ccee", "#44aa99", "#117733", "#999933"),
    *("#ddcc77", "#cc6677", "#882255", "#aa4499", "#bbbbbb"),
)
_ARCHITECTURES = {
    **{"lenet": "LeNet", "alexnet": "AlexNet", "resnet18": "ResNet-18", "shufflenet_v2": "ShuffleNetV2"},
    **{
        "mcmahan_cnn": "McMahan CNN",
        "mcmahan_unpadded": "McMahan CNN without padding",
        "mcmahan_2nn": "McMahan 2NN",
        "logistic": "logistic regression",
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
    """Check that all kinds are in `FIGURE_FILES`. Raises InputError if a kind is not; the message names it."""
    if unknown := [kind for kind in kinds if kind not in FIGURE_FILES]:
        raise InputError(f"figures of a report: {unknown[0]!r} is unknown; choose from {', '.join(FIGURE_FILES)}.")


def look(method: str) -> Look:
    """Return the color and marker of a method. A method outside the registry gets spare ones, chosen by its name."""
    if method in _LOOKS:
        return _LOOKS[method]
    place = sum(method.encode())
    return Look(_SPARE[place % len(_SPARE)], _SPARE_MARKERS[place % len(_SPARE_MARKERS)])


def readable(color: str) -> str:
    """Return a color, darkened until text in it has a contrast of 4.5 to 1 on white."""
    for shade in range(100, -1, -5):
        parts = [int(color[place : place + 2], 16) * shade / 100 for place in (1, 3, 5)]
        linear = [(part / 255 / 12.92 if part <= 10 else ((part / 255 + 0.055) / 1.055) ** 2.4) for part in parts]
        if 1.05 / (0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2] + 0.05) >= 4.5:
            break
    return "#" + "".join(f"{round(part):02x}" for part in parts)


def architecture_title(architecture: str) -> str:
    """Return the name of an architecture in figures, without its library or package."""
    return _ARCHITECTURES.get(architecture, architecture.rpartition(":")[2])


def label_colors(classes: int) -> list[str]:
    """Return the colors of labels: ten distinguishable colors, or a color scale for more than ten labels."""
    if classes <= len(_LABELS):
        return list(_LABELS[:classes])
    import matplotlib as mpl

    return [mpl.colors.to_hex(mpl.colormaps["viridis"](label / (classes - 1))) for label in range(classes)]
