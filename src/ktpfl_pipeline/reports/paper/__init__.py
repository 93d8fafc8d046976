"""The KT-pFL paper's own numbers and settings, and where its numbers may be shown next to ours.

Zhang, Guo, Ma, Wang, Xu, Wu: Parameterized Knowledge Transfer for Personalized Federated Learning, NeurIPS 2021.
`tables` has all numbers of Tables 1 to 6, `stated` every setting that the paper or its released code states.
"""

from collections.abc import Iterable
from typing import Any

from ktpfl_pipeline import methods
from ktpfl_pipeline.analysis.study import Cell
from ktpfl_pipeline.reports.paper import stated, tables
from ktpfl_pipeline.reports.paper.stated import DATASETS, one_architecture, table_of
from ktpfl_pipeline.reports.paper.tables import Cited

__all__ = ["DATASETS", "one_architecture"]


def number(settings: dict[str, Any], method: str) -> Cited | None:
    """Return the paper's number in Table 1 or 2 for a method on these data, even if other settings differ."""
    source, name = family(settings), names().get(method, method)
    if one_architecture(settings):
        return tables.ONE.get((source, str(settings["clients"]), name))
    return tables.SEVERAL.get((source, settings["partition"]["scheme"], name))


def of_cell(cell: Cell) -> Cited | None:
    """Return the paper's number for a cell of its tables, or None if the paper has no such number."""
    part = table_of(cell.part)
    if part in tables.OF_KT_PFL:
        numbers = tables.OF_KT_PFL[part].get(family(cell.settings), {})
        return numbers.get(cell.label) if cell.method == "kt_pfl" else None
    return number(cell.settings, cell.method) if part in ("table1", "table2") else None


def best(part: str, settings: dict[str, Any], labels: list[str]) -> list[tuple[str, list[str]]]:
    """Return KT-pFL's best column in the paper for each setting that a table varies, and the other columns' labels."""
    numbers, found = tables.OF_KT_PFL.get(table_of(part), {}).get(family(settings), {}), []
    for varied in dict.fromkeys(label.partition(" = ")[0] for label in numbers if " = " in label):
        own = {label: cited.value for label, cited in numbers.items() if label.startswith(f"{varied} = ")}
        highest = max(own, key=lambda label: own[label])
        if others := [label for label in own if label in labels and label != highest]:
            found.append((highest, others))
    return found


def cited(settings: dict[str, Any], names: Iterable[str]) -> dict[str, str]:
    """Return the formatted numbers of Table 1 or 2 by method, without methods that are not in the table."""
    return {name: str(known) for name in names if (known := number(settings, name))}


def names() -> dict[str, str]:
    """Return the paper's name of each method. Different readings of a method share a name and its number."""
    return {method: name for method, preset in methods.METHODS.items() if (name := preset.kind.paper_name)}


def dataset(settings: dict[str, Any]) -> str:
    """Return the name of the private data: the paper's name if it has these data, otherwise the source."""
    return DATASETS.get(family(settings), str(settings["private"]["source"]))


def family(settings: dict[str, Any]) -> str:
    """Return the name of an experiment's private data in the paper's tables."""
    return stated.family_of(str(settings["private"]["source"]))


def differences(settings: dict[str, Any]) -> list[str]:
    """Return in words how the settings differ from those that the paper states for Table 1 or 2; empty if they do not.

    Missing settings are not compared, and neither are settings that only the released code shows, such as rounds, or
    the number of a cell's runs.
    """
    return [
        f"{each.name} {each.ours} instead of {each.paper}"
        for each in stated.compared(Cell("", "", "", "", settings, {}, []))
        if each.differs and stated.CODE not in each.source and each.name != "runs of a cell"
    ]
