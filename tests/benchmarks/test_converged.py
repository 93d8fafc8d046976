"""The tables of the page on converged clients."""

import converged
import pytest
from converged import METHODS, STUDY
from studies import LOCAL, Runs, read, replaced

from ktpfl_pipeline.analysis.statistics import paired


@pytest.fixture(scope="module")
def by_part() -> dict[str, Runs]:
    return converged.parts(read(STUDY.kept))


def test_the_page_shows_the_kept_rows() -> None:
    drawn = converged.tables(read(STUDY.kept))
    assert [len(headed) for headed in drawn.values()] == [4, len(converged.DATA) * len(converged.PARTITIONS) + 2]
    for page, headed in drawn.items():
        assert replaced(page.read_text("utf-8"), headed) == page.read_text("utf-8")


def test_bold_is_corrected_for_every_row(by_part: dict[str, Runs]) -> None:
    """Sim-pFL with two classes of CIFAR-10 is significant alone, but not among all rows."""
    runs = by_part["CIFAR-10, two classes"]
    found, alone = runs.minus(LOCAL), paired(runs.means("sim_pfl"), runs.means(LOCAL))
    assert {each.family for each in found.values() if each} == {len(METHODS) - 1}
    assert [name for name, each in found.items() if each and each.sign] == ["kt_pfl_joint", "fedmd", "feddf", "fedapen"]
    assert (found["sim_pfl"].sign, alone.sign) == (0, -1)


def test_the_page_says_what_exchange_adds_to_the_two_models_of_fedapen(by_part: dict[str, Runs]) -> None:
    found = {where: runs.minus("pairs")["fedapen"] for where, runs in by_part.items()}
    assert {where: (round(100 * each.mean, 1), each.sign) for where, each in found.items()} == {
        "Fashion-MNIST, all classes": (9.0, 1),
        "Fashion-MNIST, two classes": (0.2, 0),
        "CIFAR-10, all classes": (8.2, 1),
        "CIFAR-10, two classes": (1.7, 1),
    }
    for where in ("Fashion-MNIST, all classes", "CIFAR-10, all classes"):
        assert {each.sign for each in by_part[where].minus("fedapen").values()} == {-1}


def test_the_page_says_what_methods_of_one_architecture_gain() -> None:
    rows = read(STUDY.kept)
    found = {
        (where, point): {
            name: each for name, each in runs.minus(LOCAL, point).items() if each and name != "local_matched"
        }
        for where, runs in converged.parts(rows, "one").items()
        for point in (converged.AS_IS, converged.AFTER)
    }
    for (where, _), differences in found.items():
        assert "two classes" not in where or max(each.mean for each in differences.values()) < 0
    assert {each.sign for each in found["CIFAR-10, all classes", converged.AS_IS].values()} == {0}
    lost = converged.diverged(rows)
    assert (sum(lost.values()), {method for _, _, method in lost}) == (4, {"scaffold"})


def test_the_figure_sorts_the_methods_and_writes_what_is_beyond_its_axis(by_part: dict[str, Runs]) -> None:
    panels = converged.picture(read(STUDY.kept)).axes
    assert [axes.get_title("left") for axes in panels] == list(by_part)
    texts = [[text.get_text() for text in axes.texts] for axes in panels]
    assert texts == [["◂ −32.1"], [], [], ["◂ −33.1"]]
    for axes, runs in zip(panels, by_part.values(), strict=True):
        local, means = runs.means(LOCAL), {name: runs.means(name) for name in converged.COMPARED if name != LOCAL}
        gains = {converged.title(n): sum(own[s] - local[s] for s in own) / len(own) for n, own in means.items()}
        assert [label.get_text() for label in axes.get_yticklabels()] == sorted(gains, key=lambda n: -gains[n])


def test_the_kept_file_has_all_runs() -> None:
    wanted = converged.shown_runs()
    assert STUDY.missing(wanted) == []
    assert STUDY.missing([wanted[0], wanted[1]._replace(seed="7")]) == [wanted[1]._replace(seed="7")]
    assert list(read(STUDY.kept)[0]) == list(STUDY.columns)
