"""The tables of the page on converged clients."""

import converged
from page_tables import replaced


def test_the_page_shows_the_kept_rows() -> None:
    page = converged.PAGE.read_text("utf-8")
    drawn = converged.tables(converged.read(converged.KEPT))
    assert len(drawn) == len(converged.DATA) * len(converged.PARTITIONS) + 3
    assert replaced(page, drawn) == page


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
