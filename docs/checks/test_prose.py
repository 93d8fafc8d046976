"""Plain English: rewritten pages avoid every pattern, and no pattern becomes more frequent elsewhere."""

import re
from collections import Counter

import prose
import pytest

REWRITTEN = (
    *(
        "README.md",
        "docs/README.md",
        "docs/start/",
        "docs/how_to/run.md",
        "docs/how_to/tune.md",
        "docs/how_to/resume.md",
    ),
    *("docs/how_to/difficult_clients.md", "docs/how_to/compress_predictions.md", "docs/how_to/private_training.md"),
    *("docs/results", "docs/kt_pfl", "docs/methods", "docs/fair_comparisons.md", "docs/comparison.md"),
    *("docs/architecture.md", "docs/adding_a_method.md", "docs/index.md", "docs/gallery.md", "CHANGELOG.md"),
    *("benchmarks/README.md", "CODE_OF_CONDUCT.md", "SECURITY.md", "src/ktpfl_pipeline/methods/"),
    *("docs/reference/", "docs/how_to/speed.md", "docs/how_to/text.md"),
    *("docs/reading_results.md", "docs/privacy.md", "docs/real_clients.md", "docs/glossary.md"),
    *("docs/tutorial.md", "docs/how_to/own_", "docs/how_to/paper.md", "docs/how_to/partitions.md"),
    *(
        "docs/how_to/recipes.md",
        "docs/how_to/come_and_go.md",
    ),
)
"""Pages, and folders of pages, without any of the patterns."""
LIMITS = {
    "P1": (2, 0, 0),
    "P3": (0, 0, 1),
    "P5": (2, 0, 0),
    "P6": (0, 0, 0),
    "P12": (5, 0, 0),
    "P13": (1, 0, 0),
    "P14": (0, 0, 0),
    "P15": (1, 0, 0),
    "P17": (0, 0, 0),
    "P18": (2, 0, 2),
    "P19": (1, 0, 0),
    "P20": (0, 0, 0),
    "P21": (0, 0, 0),
    "long": (0, 0, 0),
    "numbers": (0, 0, 0),
}
"""How often each pattern may occur: in the documentation, in the comments of conf/, in the source. Lower them."""


@pytest.mark.parametrize("beginning", REWRITTEN)
def test_a_rewritten_page_stays_plain(beginning: str) -> None:
    found = [each for each in prose.passages() if each.file.startswith(beginning)]
    assert found
    assert [(each.file, each.line, *fault) for each in found for fault in prose.faults(each)] == []


def test_no_pattern_becomes_more_frequent() -> None:
    counts = Counter((name, each.kind) for each in prose.passages() for name, _ in prose.faults(each))
    more = {
        (name, kind): count
        for (name, kind), count in counts.items()
        if count > dict(zip(("docs", "conf", "src"), LIMITS[name], strict=True))[kind]
    }
    assert more == {}, (
        "see CONTRIBUTING.md, Plain English; `python docs/checks/prose.py --show <pattern>` lists the places"
    )


def test_no_line_begins_with_a_percent_sign() -> None:
    """The site would take the line for a comment and leave it out."""
    hidden = {
        f"{file.relative_to(prose.ROOT)}: {line}"
        for file in prose.pages()
        for line in prose.FENCE.sub("", file.read_text("utf-8")).split("\n")
        if line.startswith("%")
    }
    assert hidden == set()


def test_every_table_has_a_head() -> None:
    """A blank line within a table would show its last rows as text."""
    blocks = [
        (file.name, rows)
        for file in prose.pages()
        for rows in re.findall(r"(?:^\|.*\n)+", prose.FENCE.sub("", file.read_text("utf-8")) + "\n", re.MULTILINE)
        if not re.match(r"\|.*\n\|[ :|-]+\|\n", rows)
    ]
    assert blocks == []


def test_the_patterns_are_noticed() -> None:
    """A sentence for each; what is right is left alone."""
    wrong = {
        "P1": "It stands in a file.",
        "P3": "Who is absent keeps a model.",
        "P5": "Nobody is better.",
        "P6": "It is no file.",
        "P12": "It is begun anew.",
        "P13": "The copy is thrown away.",
        "P14": "It takes some 17 hours.",
        "P15": "One epoch, one at least.",
        "P17": "The setting was put X to Y.",
        "P18": "It has 100 signs.",
        "P19": "What was mended.",
        "P20": "It is refused, for it would be slow.",
        "P21": "The loss leaves the finite numbers.",
        "long": " ".join(["word"] * 41) + ".",
        "numbers": "It gains 1.2 points, 3.4 with models, 5.6 at the paper's size and 7 % less in Table 2.",
    }
    for pattern, sentence in wrong.items():
        assert pattern in {name for name, _ in prose.faults(prose.Passage("x.md", 1, sentence, "docs", True))}, pattern
    right = (
        "There is no file. It stands for a model. The client starts again because its model was lost, about 17 times."
    )
    assert [*prose.faults(prose.Passage("x.md", 1, right, "docs"))] == []
    bullet = "In Tables 1 and 2 of CIFAR-10 it gains 1.3 [0.8, 1.8] points, and 2 [1, 3] with all of the 12 clients."
    assert [*prose.faults(prose.Passage("x.md", 1, bullet, "docs", True))] == []
