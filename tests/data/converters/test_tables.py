"""`ktpfl convert csv`: tables as spreadsheets and hospitals write them."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from ktpfl_pipeline.convert import convert
from ktpfl_pipeline.core.errors import InputError
from ktpfl_pipeline.data.converters import tables
from ktpfl_pipeline.data.sources import load

PATIENTS = """\ufeffid,age,sex,chol,"site, city",diagnosis
p1,50,m,200,"Zürich, CH",sick
p2,60,f,?,Basel,well
p3,70,m,300,Basel,well
p4,80,f,310,"Zürich, CH",
"""


@pytest.fixture
def patients(tmp_path: Path) -> Path:
    (tmp_path / "patients.csv").write_text(PATIENTS, encoding="utf-8")
    return tmp_path / "patients.csv"


def features(file: Path, **settings: Any) -> list[list[float]]:
    found = tables.convert(file, "diagnosis", "site, city", ("id",), **settings)[0]["features"]
    return [[float(value) for value in row] for row in found]


def test_the_command_writes_what_a_source_reads(patients: Path) -> None:
    out = patients.with_name("mine.npz")
    given = ["csv", str(patients), str(out), "--label", "diagnosis", "--client", "site, city", "--drop", "id"]
    done = CliRunner().invoke(convert, given)
    assert done.exit_code == 0, done.output
    samples: Any = load("npz:mine.npz", patients.parent)
    assert samples.class_names == ("sick", "well")
    assert samples.labels.tolist() == [0, 1, 1]
    assert samples.names == ("Basel", "Zürich, CH")
    assert samples.inputs.tolist() == [[50, 0, 1, 200], [60, 1, 0, 250], [70, 0, 1, 300]]
    assert np.load(out)["columns"].tolist() == ["age", "sex=f", "sex=m", "chol"]
    for line in (
        "id: left out",
        "1 of 4 rows without diagnosis",
        "sex: 2 features, one per value (f, m)",
        "median of all rows, 250",
    ):
        assert line in done.output


def test_rows_with_a_missing_value_may_be_left_out(patients: Path) -> None:
    assert features(patients, drop_rows=True) == [[50, 1, 200], [70, 1, 300]]


def test_semicolons_and_decimal_commas(tmp_path: Path) -> None:
    (tmp_path / "mine.csv").write_text("dose;label\n1,5;b\n2,5;a\n", encoding="utf-8")
    made, _ = tables.convert(tmp_path / "mine.csv", "label", decimal=",")
    assert made["features"].tolist() == [[1.5], [2.5]]
    assert made["labels"].tolist() == [1, 0]
    assert "clients" not in made


def test_only_plain_decimal_numbers_are_numbers(tmp_path: Path) -> None:
    (tmp_path / "mine.csv").write_text(
        "x,age,day,label\n-1.5e3,18_25,1.2.20,a\n+.5,26_40,3.4.20,b\n2.,18_25,3.4.20,b\n"
    )
    made, _ = tables.convert(tmp_path / "mine.csv", "label")
    assert made["columns"].tolist() == ["x", "age=18_25", "age=26_40", "day=1.2.20", "day=3.4.20"]
    assert made["features"][:, :3].tolist() == [[-1500, 1, 0], [0.5, 0, 1], [2, 1, 0]]


def test_classes_that_are_numbers_are_sorted_as_numbers(tmp_path: Path) -> None:
    (tmp_path / "mine.csv").write_text("x,label\n1,10\n2,2\n4,2\n", encoding="utf-8")
    made, _ = tables.convert(tmp_path / "mine.csv", "label")
    assert made["classes"].tolist() == ["2", "10"]
    assert made["labels"].tolist() == [1, 0, 0]


def test_classes_and_clients_may_have_names_that_mean_missing_in_a_feature(tmp_path: Path) -> None:
    (tmp_path / "mine.csv").write_text("x,site,label\n1,NA,+\n-,NA,-\n3,b,-\n4,b,\n2,b,+\n", encoding="utf-8")
    made, said = tables.convert(tmp_path / "mine.csv", "label", "site")
    assert made["classes"].tolist() == ["+", "-"]
    assert made["labels"].tolist() == [0, 1, 1, 0]
    assert made["clients"].tolist() == ["NA", "NA", "b", "b"]
    assert made["features"].tolist() == [[1], [2], [3], [2]]
    assert "site: 'NA' is a name here; if it means a missing value, add --missing 'NA'" in said
    made, said = tables.convert(tmp_path / "mine.csv", "label", "site", missing=("NA",))
    assert made["clients"].tolist() == ["b", "b"]


@pytest.mark.parametrize(
    ("rows", "settings", "words"),
    [
        (
            "name,label\n" + "".join(f"n{i},{i % 2}\n" for i in range(60)),
            {},
            r"60 different texts in 60 rows.*drop 'name'",
        ),
        ("x,label\nunknown,a\n" + "".join(f"{i},b\n" for i in range(60)), {}, r"write --missing 'unknown'"),
        ("x,labels\n1,a\n", {}, r"--label is 'label'.*did you mean 'labels'"),
        ("x,label\n1,a\n", {"client": "site"}, "--client is 'site'"),
        ("x,label\n1,a\n", {"drop": ("label",)}, "--drop is 'label', which is the column of the label"),
        ("x,label\n1,\n", {}, "no row with all that is needed"),
        ("label\na\nb\n", {}, "no column besides label"),
        ("x,label\n1,a\n2,a\n3,\n", {}, r"one class, 'a' \(rows kept: 2\): .* with --label"),
        ("x,y,label\n,1,a\n,2,b\n", {}, "column 'x' .* has no value"),
        ("when,label\n1700000000,a\n1700000001,b\n", {}, "column 'when' .* 1700000000 to 1700000001, .* subtract"),
        ("x,label\n1,a\n1e39,b\n", {}, r"column 'x' .* has '1e39' in row 3, .* too large .* --missing '1e39'"),
        ("x;label\n,5;\n999,5;a\n1.234;b\n", {"decimal": ","}, r"column 'x' .* has '1.234' in row 4, and --decimal"),
        ("x;label\n999,5;a\n1.234,5;b\n", {"decimal": ","}, r"has '1.234,5' in row 3, .* without points"),
        ("x,label\n1,a\n2,b\n", {"decimal": ""}, "--decimal is '', and only '.' and ',' are possible"),
        ("", {}, "is not a table in UTF-8"),
    ],
)
def test_columns_that_are_not_features_are_rejected(
    rows: str, settings: dict[str, Any], words: str, tmp_path: Path
) -> None:
    (tmp_path / "mine.csv").write_text(rows, encoding="utf-8")
    with pytest.raises(InputError, match=words):
        tables.convert(tmp_path / "mine.csv", "label", **settings)


def test_bytes_that_are_not_text_are_rejected(tmp_path: Path) -> None:
    (tmp_path / "mine.csv").write_bytes(b"x,label\n\xff\xfe,a\n")
    with pytest.raises(InputError, match="is not a table in UTF-8"):
        tables.convert(tmp_path / "mine.csv", "label")


def test_a_column_that_counts_the_rows_is_pointed_out(tmp_path: Path) -> None:
    (tmp_path / "mine.csv").write_text("row,label\n1,a\n2,b\n3,a\n", encoding="utf-8")
    _, said = tables.convert(tmp_path / "mine.csv", "label")
    assert any("count the rows" in line and "--drop 'row'" in line for line in said)
