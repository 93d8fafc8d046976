"""The tables of the map, from runs whose numbers are known."""

import map as page
import pytest
from studies import LOCAL, read, replaced

NOISE = (-0.1, 0.0, 0.1)


def lines(gain: float = 2.0) -> list[dict[str, str]]:
    """Return all runs: 70 % alone; KT-pFL is above it by `gain` points with all classes, else below it by one."""
    found = []
    for setting, method, seed in page.wanted():
        line = {name: str(value) for name, value in setting._asdict().items()} | {"method": method, "seed": str(seed)}
        above = gain if setting.classes == page.CLASSES[setting.data] else -1.0
        line |= dict.fromkeys(page.POINTS, f"{70 + (above + NOISE[seed]) * (method == 'kt_pfl'):.3f}")
        line |= dict.fromkeys(page.EXCHANGE, f"{setting.classes / 10:.4f}" if method == LOCAL else "")
        found.append(line)
    return found


def test_the_settings_differ_and_fit_the_datasets() -> None:
    settings = page.settings()
    assert len(set(settings)) == len(settings) == 70
    assert all((each.samples + page.TEST) * each.clients <= 1597 for each in settings if each.data == "digits")


def test_gains_are_paired_by_seed() -> None:
    found = page.gains(page.values(lines()), "kt_pfl", "adapted")
    assert {round(100 * each.mean, 6) for each in found.values()} == {2.0, -1.0}


def test_the_counts_have_both_signs() -> None:
    row = page.counted(page.values(lines(20.0))).splitlines()[3]
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    pays = sum(each.classes == page.CLASSES[each.data] for each in page.settings())
    assert cells[:3] == ["KT-pFL, adapted", str(pays), str(pays)]
    assert cells[-3:] == ["−1.0", "−1.0", "+20.0"]


def test_the_answer_counts_gains_by_classes() -> None:
    text = page.answered("# Map\n\n**Old\nanswer.** Rest. **Bold**", page.values(lines()))
    assert text.startswith("# Map\n\n**KT-pFL, adapted, has a higher mean than local-only training in 29 of 29 ")
    assert "in 0 of 29 settings with two classes per client (mean difference −1.0 points)" in " ".join(text.split())
    assert text.endswith("** Rest. **Bold**")


def test_what_separates_the_settings_is_learned_from_other_datasets() -> None:
    """Overlap and agreement decide, so that datasets which were left out are predicted better than by a constant."""
    row = page.predicted(page.values(lines())).splitlines()[-1]
    hits, no, yes = (float(cell.strip(" %")) for cell in row.strip("|").split("|")[3:])
    assert hits > max(no, yes)


def test_the_page_shows_the_kept_runs() -> None:
    text, found = page.PAGE.read_text("utf-8"), page.values(read(page.STUDY.kept))
    made = {f"## {heading}\n": table(found) for heading, table in page.TABLES.items()}
    assert page.answered(replaced(text, made), found) == text


@pytest.mark.parametrize("classes", page.CLASSES.values())
def test_identity_survives_the_file(classes: int) -> None:
    line = next(line for line in lines() if int(line["classes"]) == classes)
    assert page.identity(line) in page.wanted()
