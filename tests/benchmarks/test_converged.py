"""The tables of the page on converged clients."""

import converged
from page_tables import replaced


def test_the_page_shows_the_kept_rows() -> None:
    drawn = converged.tables(converged.read(converged.KEPT))
    assert [len(headed) for headed in drawn.values()] == [3, len(converged.DATA) * len(converged.PARTITIONS) + 1]
    for page, headed in drawn.items():
        assert replaced(page.read_text("utf-8"), headed) == page.read_text("utf-8")


def test_bold_is_corrected_for_every_row() -> None:
    """Sim-pFL with two classes of CIFAR-10 is significant without the parts of KT-pFL (joint), but not among all."""
    rows = converged.parts(converged.read(converged.KEPT))["CIFAR-10, two classes"]
    values = {name: converged.by_seed([r for r in rows if r["method"] == name], "as is") for name in converged.METHODS}
    found = converged.differences({n: (own, values["local"]) for n, own in values.items() if n != "local"})
    assert {each.family for each in found.values() if each} == {len(converged.METHODS) - 1}
    assert [name for name, each in found.items() if each and each.sign] == ["kt_pfl_joint", "fedmd", "feddf"]
    assert 0.05 < found["sim_pfl"].p < 0.1


def test_the_figure_sorts_the_methods_and_writes_what_is_beyond_its_axis() -> None:
    rows = converged.read(converged.KEPT)
    shown, panels = converged.parts(rows), converged.drawn(rows).axes
    assert [axes.get_title("left") for axes in panels] == list(shown)
    texts = [[text.get_text() for text in axes.texts] for axes in panels]
    assert texts == [[], [], [], ["◂ −33.1"]]
    for axes, own in zip(panels, shown.values(), strict=True):
        means = {
            converged.title(name): converged.by_seed([row for row in own if row["method"] == name], "as is")
            for name in converged.COMPARED
        }
        local = means.pop("Local-only")
        gains = {name: sum(seeds[s] - local[s] for s in seeds) / len(seeds) for name, seeds in means.items()}
        assert [label.get_text() for label in axes.get_yticklabels()] == sorted(gains, key=lambda n: -gains[n])
