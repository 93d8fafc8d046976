"""`ktpfl convert csv`: tables as spreadsheets and hospitals write them."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from ktpfl_pipeline.convert import convert
from ktpfl_pipeline.core.errors import InputError
from ktpfl_pipeline.data.converters import tables
from ktpfl_pipeline.data.sources import load, load_public, npz

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
    assert done.output.endswith(f"private.source: npz:{out}\n")


def test_a_file_in_the_folder_of_data_is_named_as_settings_name_it(
    patients: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(patients.parent)
    Path("data", "01_raw").mkdir(parents=True)
    given = ["csv", str(patients), "data/01_raw/mine.npz", "--label", "diagnosis", "--drop", "id"]
    done = CliRunner().invoke(convert, given)
    assert done.output.endswith("private.source: npz:mine.npz\n"), done.output


def test_rows_with_a_missing_value_may_be_left_out(patients: Path) -> None:
    assert features(patients, drop_rows=True) == [[50, 1, 200], [70, 1, 300]]


def test_errors_of_a_spreadsheet_are_missing_numbers(tmp_path: Path) -> None:
    (tmp_path / "mine.csv").write_text("ratio,label\n1,a\n#DIV/0!,b\n3,a\n#N/A,b\n5,b\n", encoding="utf-8")
    made, said = tables.convert(tmp_path / "mine.csv", "label")
    assert made["columns"].tolist() == ["ratio"]
    assert made["features"].ravel().tolist() == [1, 3, 3, 3, 5]
    assert said[-1] == "ratio: numbers, 2 missing, which are now the median of all rows, 3"


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


@pytest.mark.parametrize(
    ("name", "cells", "told"),
    [
        ("", [7, 3, 9, 5], ": numbers without a name, as pandas writes the index of the rows"),
        ("Unnamed: 0", [7, 3, 9, 5], "Unnamed: 0: numbers without a name, as pandas writes the index of the rows"),
        ("row", [3 * n + n % 2 for n in range(20)], "row: numbers that rise with every row, as an index does"),
        ("age", [20, 22, 25, 30], "age: numbers"),
        ("dose", [n / 2 for n in range(20)], "dose: numbers"),
        ("", [7, 3, 3, 5], ": numbers"),
        ("patient_id", [7, 3, 3, 5], "patient_id: numbers that are called an id"),
        ("PatientID", [7, 3, 9, 5], "PatientID: numbers that are called an id"),
        ("fluid", [7, 3, 9, 5], "fluid: numbers"),
    ],
)
def test_an_index_of_the_rows_is_pointed_out(name: str, cells: list[float], told: str, tmp_path: Path) -> None:
    rows = "".join(f"{cell},{'ab'[n % 2]}\n" for n, cell in enumerate(cells))
    (tmp_path / "mine.csv").write_text(f"{name},label\n{rows}", encoding="utf-8")
    _, said = tables.convert(tmp_path / "mine.csv", "label")
    advice = f", which no model should learn from: leave them out with --drop {name!r}"
    assert said[1] == told + advice * (not told.endswith("numbers"))


def test_a_number_means_a_missing_value_in_any_form(tmp_path: Path) -> None:
    (tmp_path / "mine.csv").write_text("x,code,label\n-999.0,09,a\n-999,9,b\n5,9,a\n7,8,-9\n", encoding="utf-8")
    made, said = tables.convert(tmp_path / "mine.csv", "label", missing=["-999.00", "9", "-9.0"], text=["code"])
    assert made["features"][:, 0].tolist() == [6, 6, 5, 7]
    assert made["columns"].tolist() == ["x", "code=09", "code=8", "code=missing"], "the code 09 is another than 9"
    assert made["classes"].tolist() == ["-9", "a", "b"]
    assert "--missing '-9.0': in no column" in said
    assert not any("'9': in no column" in line or "'-999.00': in no" in line for line in said)


def test_a_name_with_the_sign_between_column_and_category_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine.csv").write_text("t=C,label\n1,a\n2,b\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"mine\.csv has a column 't=C': rename it without ="):
        tables.convert(tmp_path / "mine.csv", "label")


@pytest.mark.parametrize(
    ("cells", "advice"),
    [
        (["36,4", "37", "38,25"], "write --decimal ',' if it has decimal commas. If they are"),
        (["1,234", "2,500", "17"], "decimal commas, or write its numbers as digits with a decimal point, without"),
        (["1.234,5", "36,4", "2"], ": write its numbers as digits with a decimal point, without separators of thou"),
        (["1 234", "2\u00a0500", "7"], ": write its numbers as digits with a decimal point"),
        (["1'234.5", "2'500", "7"], ": write its numbers as digits with a decimal point"),
        ([*map(str, range(20)), "n.b."], ": write --missing 'n.b.' if 'n.b.' means a missing number"),
        ([*(f"{n},5" for n in range(20)), "n.b."], "decimal commas, or write --missing 'n.b.'"),
    ],
)
def test_numbers_in_another_format_are_no_categories(cells: list[str], advice: str, tmp_path: Path) -> None:
    rows = "".join(f"{cell};{'ab'[place % 2]}\n" for place, cell in enumerate(cells))
    (tmp_path / "mine.csv").write_text(f"dose;label\n{rows}", encoding="utf-8")
    with pytest.raises(InputError, match=re.escape(advice)) as caught:
        tables.convert(tmp_path / "mine.csv", "label")
    assert "--drop" not in str(caught.value)
    made, _ = tables.convert(tmp_path / "mine.csv", "label", text=("dose",))
    assert made["features"].shape == (len(cells), len(cells))


@pytest.mark.parametrize("cells", [["18-25", "26-40"], ["1.2.20", "3.4.20"], ["1", "2", "x"], ["C1", "C2"], ["10:30"]])
def test_texts_with_digits_are_categories(cells: list[str], tmp_path: Path) -> None:
    rows = "".join(f"{cell};{'ab'[place % 2]}\n" for place, cell in enumerate([*cells, *cells, "y"]))
    (tmp_path / "mine.csv").write_text(f"dose;label\n{rows}", encoding="utf-8")
    assert tables.convert(tmp_path / "mine.csv", "label")[0]["features"].shape[1] == len(cells) + 1


@pytest.mark.parametrize(
    ("cell", "what"),
    [
        (
            "{}.5%",
            "numbers such as '0.5%', which would become a feature for each value: write them with the digits 0 to 9",
        ),
        ("{} mg/dl", "numbers such as '0 mg/dl'"),
        ("€ {},50", "numbers such as '€ 0,50'"),
        (
            "2024-01-{:02}",
            "dates or times such as '2024-01-00', which would become a feature for each value: write a number",
        ),
        ("{}.3.2024", "dates or times such as '0.3.2024'"),
        ("2024-01-05 {}:00:00", "dates or times such as"),
        ("2024/1/{}", "dates or times such as '2024/1/0'"),
        ("{}.3.2024, 10:30", "dates or times such as"),
        ("{} March 2024", "dates or times such as"),
        ("Mar {}, 2024", "dates or times such as"),
        ("{}-Jan-24", "dates or times such as"),
        ("{}:30 pm", "dates or times such as"),
        ("arabic", "numbers such as '٠٠'"),
    ],
)
def test_dates_and_numbers_with_a_unit_or_in_another_script_are_no_categories(
    cell: str, what: str, tmp_path: Path
) -> None:
    signs = dict(zip("0123456789", "٠١٢٣٤٥٦٧٨٩", strict=True))
    cells = ["".join(signs[d] for d in f"{n:02}") if cell == "arabic" else cell.format(n) for n in range(20)]
    rows = "".join(f"{each};{'ab'[place % 2]}\n" for place, each in enumerate(cells))
    (tmp_path / "mine.csv").write_text(f"dose;label\n{rows}", encoding="utf-8")
    with pytest.raises(InputError, match=re.escape(what)):
        tables.convert(tmp_path / "mine.csv", "label")
    assert tables.convert(tmp_path / "mine.csv", "label", text=("dose",))[0]["features"].shape == (20, 20)


@pytest.mark.parametrize("cell", ["C{}", "ward {}", "{}st street {}", "{}-{}"])
def test_names_with_numbers_are_categories(cell: str, tmp_path: Path) -> None:
    rows = "".join(f"{cell.format(n, n + 1)};{'ab'[n % 2]}\n" for n in range(20))
    (tmp_path / "mine.csv").write_text(f"place;label\n{rows}", encoding="utf-8")
    assert tables.convert(tmp_path / "mine.csv", "label")[0]["features"].shape == (20, 20)


def test_the_sign_of_minus_is_a_minus(tmp_path: Path) -> None:
    (tmp_path / "mine.csv").write_text("x,label\n\u22121.5,a\n2,b\n", encoding="utf-8")
    assert tables.convert(tmp_path / "mine.csv", "label")[0]["features"].tolist() == [[-1.5], [2]]


def test_values_that_look_wrong_are_pointed_out(tmp_path: Path) -> None:
    """Names that differ only in form, in every kind of column, and a code for no data."""
    pairs = (("Graz", "yes"), ("graz", "Yes"))
    rows = [f"{','.join(pairs[n % 2])},{-9999 if n == 3 else n % 7}.0,{n // 20}\n" for n in range(40)]
    (tmp_path / "mine.csv").write_text(f"site,smoker,age,label\n{''.join(rows)}", encoding="utf-8")
    _, said = tables.convert(tmp_path / "mine.csv", "label", "site")
    assert any("the names 'Graz' and 'graz' differ only in capitals" in line for line in said)
    assert any("the names 'Yes' and 'yes' differ only in capitals" in line for line in said)
    (age,) = (line for line in said if line.startswith("age:"))
    assert "-9999, and its other values are from 0 to 6: if that means no data, add --missing '-9999.0'" in age
    (tmp_path / "mine.csv").write_text("x,label\n1,1\n2,1.0\n3,2\n", encoding="utf-8")
    _, said = tables.convert(tmp_path / "mine.csv", "label")
    assert any("the names '1' and '1.0' differ" in line for line in said)


@pytest.mark.parametrize(
    ("cells", "told"),
    [
        (["01234", "00012", "950"], "; warning: '01234' may be a code: --text 'x' takes codes as categories"),
        (["1E5", "2E3", "3E1"], "; warning: '1E5' may be a code: --text 'x' takes codes as categories"),
        (
            ["950", *(f"{n}.500" for n in range(1, 20))],
            "; warning: '1.500' is below a thousand here: if it means 1500, write numbers without points",
        ),
        (["950", *(f"{n}.5" for n in range(1, 20))], ""),
        ([f"{n}.500" for n in range(1, 20)], ""),
        (["950", *(f"0.{n}" for n in range(101, 120))], ""),
        (["0", "0.25", "1e-05", "1e+16"], ""),
    ],
)
def test_numbers_that_may_mean_something_else_are_pointed_out(cells: list[str], told: str, tmp_path: Path) -> None:
    rows = "".join(f"{cell};{'ab'[n % 2]}\n" for n, cell in enumerate(cells))
    (tmp_path / "mine.csv").write_text(f"x;label\n{rows}", encoding="utf-8")
    _, (_, said) = tables.convert(tmp_path / "mine.csv", "label")
    assert said.endswith(told) if told else "; warning: '" not in said


def test_groups_are_kept(tmp_path: Path) -> None:
    (tmp_path / "mine.csv").write_text("patient,site,x,label\n7,a,1,u\n7,a,2,v\n7,b,3,u\n8,b,4,v\n,b,4,v\n")
    made, said = tables.convert(tmp_path / "mine.csv", "label", "site", group="patient")
    assert made["groups"].tolist() == ["7", "7", "7", "8"]
    assert "patient: the group, 2 of them" in said
    np.savez(tmp_path / "mine.npz", **made)
    assert load("npz:mine.npz", tmp_path).groups.tolist() == [0, 0, 1, 2], "patient 7 at two sites is two patients"


class TestAnotherTable:
    """A new patient is encoded with the columns, categories and medians of the table of the clients."""

    @pytest.fixture
    def known(self, patients: Path) -> Path:
        out = patients.with_name("mine.npz")
        given = ["csv", str(patients), str(out), "--label", "diagnosis", "--client", "site, city", "--drop", "id"]
        assert CliRunner().invoke(convert, given).exit_code == 0
        return out

    def encoded(self, known: Path, rows: str, *options: str) -> Any:
        table, out = known.with_name("new.csv"), known.with_name("new.npz")
        table.write_text(rows, encoding="utf-8")
        return CliRunner().invoke(convert, ["csv", str(table), str(out), "--like", str(known), *options])

    def test_is_encoded_in_the_same_columns(self, known: Path) -> None:
        done = self.encoded(known, "chol,note,sex,age\n,x,m,55\n240,y,,\n")
        assert done.exit_code == 0, done.output
        made = np.load(known.with_name("new.npz"))
        assert made["features"].tolist() == [[55, 0, 1, 250], [60, 0, 1, 240]], "the medians, and the most frequent sex"
        assert made["columns"].tolist() == ["age", "sex=f", "sex=m", "chol"]
        assert load_public("npz:new.npz", "digits", known.parent).shape == (2, 4)

    def test_keeps_the_numbers_of_the_classes(self, known: Path) -> None:
        assert self.encoded(known, "chol,sex,age,d\n1,m,2,well\n1,m,2,well\n", "--label", "d").exit_code == 0
        assert np.load(known.with_name("new.npz"))["labels"].tolist() == [1, 1]

    def test_has_the_same_strings_for_missing_values(self, tmp_path: Path) -> None:
        (tmp_path / "old.csv").write_text("x,d\n1,coffee\n3,tea\n-999.0,tea\n", encoding="utf-8")
        known, _ = tables.convert(tmp_path / "old.csv", "d", missing=["-999"])
        np.savez(tmp_path / "old.npz", **known)
        assert load("npz:old.npz", tmp_path).missing == ("-999",)
        (tmp_path / "new.csv").write_text("x\n-999\n8\n", encoding="utf-8")
        made, said = tables.convert(tmp_path / "new.csv", None, like=npz.encoding(tmp_path / "old.npz"), missing=["-8"])
        assert made["features"].tolist() == [[2], [8]]
        assert made["missing"].tolist() == ["-8", "-999"]
        assert said == ["--missing '-8': in no column"]

    def test_knows_a_class_in_both_forms_of_unicode(self, tmp_path: Path) -> None:
        (tmp_path / "old.csv").write_text("x,d\n1,caf\u00e9\n2,tea\n", encoding="utf-8")
        known, _ = tables.convert(tmp_path / "old.csv", "d")
        (tmp_path / "new.csv").write_text("x,d\n1,tea\n2,cafe\u0301\n", encoding="utf-8")
        assert tables.convert(tmp_path / "new.csv", "d", like=known)[0]["labels"].tolist() == [1, 0]

    @pytest.mark.parametrize(
        ("rows", "words"),
        [
            ("chol,sex,age\n1,x,2\n", "column 'sex' of .* has 'x' in row 2: its values are \\['f', 'm'\\]"),
            ("chol,age\n1,2\n", "has no column 'sex': add it; its cells may be empty"),
            ("chol,sex,age\nhigh,m,2\n", "column 'chol' of .* has texts, and numbers are needed"),
            ("chol,sex,age,d\n1,m,2,dead\n", "has the class 'dead', which is not among \\['sick', 'well'\\]"),
        ],
    )
    def test_that_does_not_fit_is_refused(self, known: Path, rows: str, words: str) -> None:
        done = self.encoded(known, rows, *(["--label", "d"] if ",d" in rows else []))
        assert done.exit_code == 1
        assert re.search(words, done.output)
        assert not known.with_name("new.npz").exists()

    def test_needs_a_file_of_the_command(self, tmp_path: Path) -> None:
        np.savez(tmp_path / "other.npz", features=np.ones((2, 1)), labels=[0, 1])
        done = self.encoded(tmp_path / "other.npz", "x\n1\n")
        assert "has no array 'columns': name a file that `ktpfl convert csv` wrote" in done.output
