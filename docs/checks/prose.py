"""Plain English: words and sentences that the project's prose avoids, counted by kind and by place.

    python docs/checks/prose.py                    # the counts of each pattern, and the size of the documentation
    python docs/checks/prose.py --show P3 docs/    # each place where a pattern occurs, in files below a folder

Prose is the text of hand-written Markdown, docstrings and comments of the source, the strings of its messages, and the
comments of conf/. Code blocks, inline code, links' targets, tables' rules, front matter and tables of symbols in
docstrings are left out.
"""

import argparse
import ast
import io
import re
import tokenize
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
GENERATED = {
    f"docs/project/{name}.md" for name in ("bad_inputs", "faults", "real_faults", "torchvision_models", "what_leaves")
}
GENERATED |= {"docs/catalogue.md"}
FENCE = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)
WORDS, NUMBERS = 40, 3
"""The most words in a sentence, and the most numbers in a bullet. More of them are a table or a figure."""
NUMBER = re.compile(r"(?<![\w.-])[−+-]?\d[\d,.]*(?![\w-])")
NAMES = re.compile(
    r"\[[−+-]?[\d.]+, [−+-]?[\d.]+\]"
    r"|(?:Table|Figure|Eq\.|Section|section)s? \d+(?:(?:, | to | and )\d+)*"
)
"""What is not counted: intervals, which belong to a number, and the numbers of tables, figures and equations."""

PATTERNS = {
    "P1": r"\bst(?:and|ands|ood)\b(?! for\b| out\b|-in)",
    "P3": r"(?:(?<=[.!?:] )|^)(?:Who|Whoever)\b(?! (?:is|are|has|should|can|gets|will|learns)\b[^.]*\?)",
    "P5": r"\b(?:[Nn]obody|[Ss]omebody)\b",
    "P6": r"(?<![Tt]here )(?<![Tt]hen )\b(?:is|are|was|were) no (?!more|longer|less|"
    r"[a-z]+ (?:that|which|of that|to|in|for|with|between|where|by|on|at)\b)[a-z]+\b",
    "P12": r"\b(?:anew|begun|likewise|as ever|kin|in the place of)\b|\bbut for\b",
    "P13": r"\bthrown away\b",
    "P14": r"\bsome (?:\d|two|three|four|five|six|seven|eight|nine|ten|twenty|thirty|a hundred)",
    "P15": r"\b(?:one|two|three) at (?:least|most)\b",
    "P17": r"\bput \S+ to\b(?! (?:use|the|rest|sleep))",
    "P18": r"\bsigns\b|\btexts that\b|\bwhole numbers?\b",
    "P19": r"\bmend(?:s|ed|ing)?\b",
    "P20": r", for (?:it|they|he|she|this|that|these|those|all|each|there|no \w+|what|"
    r"the \w+ (?:is|are|has|have|does|do|would|must)) ",
    "P21": r"\b(?:leaves?|left|leaving) the finite numbers\b",
}
"""Words to avoid: put the subject first and use the field's terms, as CONTRIBUTING.md says."""


@dataclass(frozen=True)
class Passage:
    """A piece of prose and its place.

    Attributes:
        file: Its path below the project.
        line: The number of its first line.
        text: The prose, its line breaks as spaces.
        kind: "docs", "conf" or "src".
        bullet: whether it is an item of a list.
    """

    file: str
    line: int
    text: str
    kind: str
    bullet: bool = False


def plain(text: str) -> str:
    """Return prose without inline code, formulas, addresses of links, images and HTML."""
    text = re.sub(r"<!--.*?-->", " ", text, flags=re.DOTALL)
    text = re.sub(r"``[^`]*``|`[^`]*`", "X", text)
    text = re.sub(r"\$[^$\n]*\$", "X", text)
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", text)
    return re.sub(r"\s+", " ", text).strip()


def markdown(file: Path) -> Iterator[Passage]:
    """Yield the paragraphs, list items, headings and table cells of a page."""
    name = file.relative_to(ROOT).as_posix()
    text = file.read_text("utf-8")
    blank = lambda match: re.sub(r"[^\n]", "", match[0])  # noqa: E731  (keeps the numbers of lines)
    text = re.sub(r"^(```+|:::+).*?^\1", blank, text, flags=re.DOTALL | re.MULTILINE)
    text = re.sub(r"^\$\$.*?\$\$", blank, text, flags=re.DOTALL | re.MULTILINE)
    block: list[str] = []
    first, bullet = 1, False

    def whole() -> Iterator[Passage]:
        if block and (words := plain(" ".join(block))):
            yield Passage(name, first, words, "docs", bullet)

    for number, line in enumerate(text.split("\n"), 1):
        if line.lstrip().startswith("|"):
            yield from whole()
            block = []
            for cell in line.strip().strip("|").split("|"):
                if re.search(r"[A-Za-z]", cell):
                    yield Passage(name, number, plain(cell), "docs")
        elif not line.strip() or re.match(r"\s*([-*+>#]|\d+\.)\s", line):
            yield from whole()
            block, first = ([re.sub(r"^\s*(?:[-*+>]|#+|\d+\.)\s+", "", line)] if line.strip() else []), number
            bullet = bool(re.match(r"\s*([-*+]|\d+\.)\s", line))
            if line.lstrip().startswith("#"):
                yield from whole()
                block = []
        else:
            if not block:
                first = number
            block.append(line)
    yield from whole()


def source(file: Path) -> Iterator[Passage]:
    """Yield the docstrings, the comments and the sentences in strings of a module."""
    name = file.relative_to(ROOT).as_posix()
    text = file.read_text("utf-8")
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.JoinedStr):
            words = "".join(str(part.value) if isinstance(part, ast.Constant) else "X" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            words = node.value
        else:
            continue
        for paragraph in re.split(r"\n\s*\n|\n(?=\s*[\w*, ]+: )", words):
            table = re.search(r"\S {2,}\S", paragraph)  # of symbols and their meanings, in columns
            if " " in paragraph.strip() and re.search(r"[a-z]{2}", paragraph) and not table:
                yield Passage(name, node.lineno, plain(paragraph), "src")
    yield from comments(name, text)


def comments(name: str, text: str) -> Iterator[Passage]:
    """Yield the comments of Python source; neighboring lines are one passage, and so is a comment behind code."""
    block: list[str] = []
    first = last = 0
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type != tokenize.COMMENT:
            continue
        line, behind = token.start[0], bool(token.line[: token.start[1]].strip())
        if block and (behind or line != last + 1):
            yield Passage(name, first, plain(" ".join(block)), "src")
            block = []
        first = first if block else line
        last = 0 if behind else line
        block.append(token.string.lstrip("#: "))
    if block:
        yield Passage(name, first, plain(" ".join(block)), "src")


def configuration(file: Path) -> Iterator[Passage]:
    """Yield the comments of a YAML file, each line a passage."""
    for number, line in enumerate(file.read_text("utf-8").split("\n"), 1):
        if match := re.search(r"(?:^|\s)#\s?(.*)", line):
            yield Passage(file.relative_to(ROOT).as_posix(), number, plain(match[1]), "conf")


def pages() -> list[Path]:
    """Return the hand-written pages: documentation, README and what lies next to it."""
    found = [*(ROOT / "docs").rglob("*.md"), *ROOT.glob("*.md"), ROOT / "benchmarks" / "README.md"]
    return sorted(file for file in found if file.relative_to(ROOT).as_posix() not in GENERATED)


@cache
def passages() -> tuple[Passage, ...]:
    """Return all prose of the project."""
    found = [passage for file in pages() for passage in markdown(file)]
    found += [passage for file in sorted((ROOT / "src").rglob("*.py")) for passage in source(file)]
    return (*found, *(passage for file in sorted((ROOT / "conf").rglob("*.yml")) for passage in configuration(file)))


def sentences(text: str) -> list[str]:
    """Split prose at the ends of its sentences."""
    return [part for part in re.split(r"(?<=[.!?:;])[)\"*]*\s+(?=[A-Z*\"(\[X])", text) if part]


def faults(passage: Passage) -> Iterator[tuple[str, str]]:
    """Yield the patterns that occur in a passage, each with the words around it."""
    for name, pattern in PATTERNS.items():
        for match in re.finditer(pattern, passage.text):
            yield name, passage.text[max(match.start() - 40, 0) : match.end() + 40]
    for sentence in sentences(passage.text):
        if len(re.findall(r"[A-Za-z][\w'’-]*", sentence)) > WORDS:
            yield "long", sentence
    if passage.bullet and len(NUMBER.findall(NAMES.sub("", passage.text))) > NUMBERS:
        yield "numbers", passage.text


def main() -> None:
    """Print the counts, or the places."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--show", nargs="*", default=[], help="patterns whose places are printed")
    parser.add_argument("below", nargs="*", default=[""], help="only files whose path begins so")
    given = parser.parse_args()
    chosen = [each for each in passages() if any(each.file.startswith(start) for start in given.below or [""])]
    counts: Counter[tuple[str, str]] = Counter()
    for passage in chosen:
        for name, words in faults(passage):
            counts[name, passage.kind] += 1
            if name in given.show or "all" in given.show:
                print(f"{passage.file}:{passage.line}: {name}: {words}")
    print(f"{'pattern':<9}{'docs':>6}{'conf':>6}{'src':>6}")
    for name in [*PATTERNS, "long", "numbers"]:
        print(f"{name:<9}" + "".join(f"{counts[name, kind]:>6}" for kind in ("docs", "conf", "src")))
    lines = {file: file.read_text("utf-8") for file in pages()}
    words = sum(len(text.split()) for text in lines.values())
    read = sum(len(re.findall(r"\S*\w\S*", FENCE.sub("", text))) for text in lines.values())
    print(
        f"{len(lines)} pages, {words:,} words, {read:,} without code blocks and tables' rules; over 250 lines: ", end=""
    )
    print(", ".join(f.relative_to(ROOT).as_posix() for f, t in lines.items() if t.count("\n") > 250) or "none")


if __name__ == "__main__":
    main()
