"""What a report says of the clients' data."""

from dataclasses import replace

import pytest
from finished_runs import make_run as run

from ktpfl_pipeline.analysis.results import summarize
from ktpfl_pipeline.reports import figures, measures
from ktpfl_pipeline.reports.figures.accuracy import client_title
from ktpfl_pipeline.reports.model import Picture, Table, Text

COUNTS = [[40, 0, 0], [0, 30, 30]]


def test_picture_sentence_and_table(prose):
    runs = [run(seed=seed, label_counts=COUNTS) for seed in (0, 1)]
    picture, text, table = measures.data(summarize(runs, {}))
    assert isinstance(picture, Picture)
    assert "two labels, the same for every seed" in prose(picture.caption, "caption")
    assert isinstance(text, Text)
    said = prose(text.text, "text")
    assert "as diverse as 1.5 equally frequent classes of 3, mean over 2 seeds" in said
    assert said.endswith("Clients have 40 to 60 samples.")
    assert isinstance(table, Table)
    assert [str(row[1]) for row in table.entries] == [f"{v} ± 0.00" for v in ("1.00", "1.00", "1.00", "1.50", "0.20")]


def test_equal_sizes_are_one_number():
    texts = [
        block.text
        for block in measures.data(summarize([run(label_counts=[[20, 20], [40, 0]])], {}))
        if isinstance(block, Text)
    ]
    assert "Clients have 40 samples." in texts[0]


@pytest.mark.usefixtures("blank_figures")
def test_owners_are_called_by_their_names():
    named = [replace(run(seed=seed, label_counts=COUNTS), names=["ann", "bo"]) for seed in (0, 1)]
    picture = measures.data(summarize(named, {}))[0]
    assert [tick.get_text() for tick in picture.figure.axes[0].get_yticklabels()] == ["ann", "bo"]
    assert client_title(summarize(named, {}), 1).endswith(" bo")
    learned = [replace(each, coefficients=[[0.5, 0.5]] * 2) for each in named]
    matrix = figures.coefficient_heatmaps(summarize(learned, {}))
    assert {tick.get_text() for tick in matrix.axes[0].get_yticklabels()} == {"ann (0)", "bo (1, 2)"}
    drawn = [named[0], replace(named[1], names=["bo", "cy"])]
    assert client_title(summarize(drawn, {}), 1).endswith(" 1")


@pytest.mark.usefixtures("blank_figures")
def test_clients_without_names_are_called_by_their_ids():
    """Newcomers, which are drawn by seed, leave other ids behind."""
    runs = [replace(run(seed=seed, coefficients=[[0.5, 0.5]] * 2), ids=ids) for seed, ids in ((0, [1, 4]), (1, [0, 4]))]
    assert client_title(summarize(runs[:1], {}), 1).endswith(" 4")
    assert client_title(summarize(runs, {}), 1).endswith(" 1")
    picture = measures.data(summarize(runs, {}))[0]
    assert [tick.get_text()[-1] for tick in picture.figure.axes[0].get_yticklabels()] == ["1", "4"]
    matrix = figures.coefficient_heatmaps(summarize(runs, {}))
    assert {tick.get_text().partition(" (")[0][-1] for tick in matrix.axes[0].get_yticklabels()} == {"1", "4"}


def test_many_classes_are_shades():
    counts = [[1 + client * label for label in range(48)] for client in range(40)]
    axes, bar = figures.labels_per_client(counts, "Many").axes
    assert axes.images[0].get_array().shape == (40, 48)
    assert axes.get_ylabel() == "40 clients"
    assert bar.get_ylabel() == "Samples"
    few = figures.labels_per_client([[1, 0] * 12, [0, 5] * 12], "Few", ["ann", "bo"]).axes[0]
    assert [tick.get_text() for tick in few.get_yticklabels()] == ["ann", "bo"]
    assert few.images[0].get_array().mask.sum() == 24
