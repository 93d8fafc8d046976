"""The registry: what follows from the classes of methods, dotted paths, and messages that name who is meant."""

import math
from dataclasses import fields
from pathlib import Path
from typing import Any, Literal, get_origin

import pytest
from annotated_types import Ge, Gt, Le, Lt
from cases import case

from ktpfl_pipeline.config import parsing
from ktpfl_pipeline.core.errors import InputError
from ktpfl_pipeline.core.validation import BOUNDS, rules
from ktpfl_pipeline.methods import (
    ANY_ARCHITECTURES,
    METHODS,
    ONE_ARCHITECTURE,
    Preset,
    compared,
    create,
    find,
    slug,
    title,
)
from ktpfl_pipeline.methods.ditto import Ditto
from ktpfl_pipeline.methods.kt_pfl import KTpFL
from ktpfl_pipeline.methods.per_fedavg import PerFedAvg

BEYOND = {
    Ge: lambda bound: bound.ge - 1,
    Gt: lambda bound: bound.gt,
    Le: lambda bound: bound.le + 1,
    Lt: lambda bound: bound.lt,
}


def answer(name: str, hyperparameters: dict[str, Any]) -> str:
    """Return why a method cannot be made, or that it can."""
    try:
        return f"{create(name, hyperparameters)} was made"
    except InputError as refused:
        return str(refused)


def test_every_method_has_a_distinct_title() -> None:
    titles = [title(name) for name in METHODS]
    assert len(set(titles)) == len(METHODS)
    assert title("kt_pfl_authors") == "KT-pFL (authors' code)"
    assert title("of a run long ago") == "of a run long ago"


@pytest.mark.parametrize(("one", "registry"), [(False, ANY_ARCHITECTURES), (True, ONE_ARCHITECTURE)])
def test_the_compared_methods_and_their_order(one: bool, registry: dict[str, Preset]) -> None:
    """KT-pFL is first and local-only training last; between them are the compared methods as they are registered."""
    names = compared(one)
    assert names[0] == ("kt_pfl_params" if one else "kt_pfl")
    assert names[-1] == "local"
    assert list(names[:-1]) == [name for name, preset in registry.items() if preset.compared and name != "local"]
    assert not {"kt_pfl_paper_literal", "kt_pfl_authors", "pfeddf", "fedkd_summed", "fedavg_ft"} & set(names)


def test_the_registry_knows_which_methods_need_one_architecture() -> None:
    assert set(ONE_ARCHITECTURE) - {"local_5x"} == {
        name for name, preset in METHODS.items() if preset.kind.one_architecture
    }


def test_methods_that_exchange_only_predictions() -> None:
    assert {name for name, preset in METHODS.items() if preset.kind.exchanges <= {"predictions"}} == {
        *("kt_pfl", "kt_pfl_paper_literal", "kt_pfl_authors", "sim_pfl", "topk_pfl"),
        *("fedmd", "feddf_soft", "pfeddf_soft", "ds_fl", "comet", "fccl", "scarlet", "selective_fd"),
        *("local", "local_matched", "local_5x"),
    }


def test_methods_that_private_training_covers() -> None:
    assert {name for name, preset in METHODS.items() if preset.kind.covered} == {
        *("kt_pfl", "kt_pfl_joint", "kt_pfl_paper_literal", "kt_pfl_authors", "sim_pfl", "topk_pfl"),
        *("fedmd", "feddf", "feddf_soft", "ds_fl", "comet", "local", "scarlet"),
        *("kt_pfl_params", "fedavg", "fedadam", "fedyogi", "fedadagrad", "pfedhn", "fedper", "fedbn"),
    }


def test_names_in_the_paper() -> None:
    """Its one number stands beside every reading of a method; ours have none."""
    found = {name: preset.kind.paper_name for name, preset in METHODS.items() if preset.kind.paper_name}
    assert found == {
        **dict.fromkeys(("kt_pfl", "kt_pfl_paper_literal", "kt_pfl_authors", "kt_pfl_params"), "KT-pFL"),
        **{"sim_pfl": "Sim-pFL", "topk_pfl": "TopK-pFL", "fedmd": "FedMD"},
        **dict.fromkeys(("pfeddf", "pfeddf_soft"), "pFedDF"),
        **dict.fromkeys(("feddf", "feddf_soft"), "FedDF"),
        **{"fedavg": "FedAvg", "fedavg_ft": "FedAvg-Local FT", "pfedme": "pFedMe", "fedfomo": "FedFomo"},
        **dict.fromkeys(("per_fedavg", "per_fedavg_hf"), "Per-FedAvg"),
        **dict.fromkeys(("fedamp", "heur_fedamp"), "FedAMP"),
        "pfedhn": "FedHN",
    }


def test_presets_differ_from_their_class_in_the_values_of_their_line() -> None:
    assert create("kt_pfl_authors") == KTpFL(update="authors", step=1.0, steps=1, rho=0.7, order="coefficients_first")
    assert create("kt_pfl_paper_literal", {"rho": 0.1}) == KTpFL(
        update="pgd", step=0.01, steps=1, rho=0.1, divergence_weight=1.0
    )
    assert create("per_fedavg_hf", {"alpha": 0.1}) == PerFedAvg(alpha=0.1, hessian=True)


def test_an_unknown_method_is_refused() -> None:
    with pytest.raises(InputError, match="did you mean 'kt_pfl'"):
        create("kt_pfll")
    with pytest.raises(InputError, match=r"choose from .*fedmd"):
        create("zzz")


def test_an_unknown_hyperparameter_is_rejected_with_the_methods_name() -> None:
    for name, preset in METHODS.items():
        for given, meant in {"nonsense": "", **{f"{entry.name}x": entry.name for entry in fields(preset.kind)}}.items():
            said = answer(name, {given: 1})
            assert said.startswith(f"{name}.{given} does not exist; ")
            assert f"did you mean '{meant}'" in said or not meant, name


def test_values_out_of_bounds_are_rejected_with_the_methods_name() -> None:
    found = [(name, *rule) for name, preset in METHODS.items() for rule in rules(preset.kind).items()]
    for name, hyperparameter, rule in found:
        bounds = [each for each in rule.metadata if type(each) in BOUNDS]
        bad: list[Any] = [BEYOND[type(bound)](bound) for bound in bounds]
        bad += ["nonsense"] if get_origin(rule.plain) is Literal else [math.nan, math.inf] if bounds else []
        for value in bad:
            said = answer(name, {hyperparameter: value})
            assert said.startswith(f"{name}.{hyperparameter} is {value!r}; ")


def test_every_number_has_bounds() -> None:
    numbers = (int, float, int | None, float | None)
    for name, preset in METHODS.items():
        found = {key: rule for key, rule in rules(preset.kind).items() if rule.plain in numbers}
        assert all(rule.metadata for rule in found.values()), name


def test_a_class_made_without_the_registry_checks_its_values_too() -> None:
    with pytest.raises(InputError, match=r"^Ditto\.coupling is -1; it must be a number of at least 0\.$"):
        Ditto(coupling=-1)


MODULE = """
from dataclasses import dataclass, field
from typing import Annotated

from annotated_types import Interval

from ktpfl_pipeline.core.method import Personal
from ktpfl_pipeline.methods.local import Local


@dataclass(frozen=True)
class Alone(Local):
    title = "Alone"
    exchanges = frozenset({"parameters"})


@dataclass(frozen=True, kw_only=True)
class Needy(Alone):
    title = "Needy"
    x: float
    names: tuple[str, ...] = field(default_factory=tuple)


@dataclass(frozen=True)
class Beyond(Alone):
    title = "Beyond"
    x: Annotated[float, Interval(ge=0, le=1)] = 2.0


class Plain(Local):
    title: str = "Plain"
    tau: float = 0.5


class Derived(Plain):
    title = "Derived"


class Constructed(Local):
    title = "Constructed"

    def __init__(self, tau=0.5):
        self.tau = tau


class Constant(Local):
    title: str = "Constant"
    tau = 0.5


class Untitled(Local):
    pass


class Unfinished(Personal):
    title = "Unfinished"


def no_class() -> None:
    pass
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A package of a user's own, outside this one."""
    (tmp_path / "of_mine").mkdir()
    (tmp_path / "of_mine" / "__init__.py").write_text("")
    (tmp_path / "of_mine" / "alone.py").write_text(MODULE)
    (tmp_path / "of_mine" / "broken.py").write_text("1 / 0")
    monkeypatch.syspath_prepend(tmp_path)
    return "of_mine"


class TestDottedPath:
    def test_leads_to_a_method_like_any_other(self, package: str) -> None:
        path = f"{package}.alone:Alone"
        assert type(create(path)) is find(path).kind
        assert (title(path), find(path)) == ("Alone", Preset(path))
        assert slug(path) == "of_mine_alone_Alone"
        assert create(f"{package}.alone:Constant") is not None, "nothing of it is to be set"

    def test_a_hyperparameter_without_a_value_and_a_default_out_of_range_are_told(self, package: str) -> None:
        assert answer(f"{package}.alone:Needy", {}) == (
            "of_mine.alone:Needy.x has neither a default nor a value: give it a default in the class, or a value under "
            "methods.of_mine.alone:Needy."
        )
        assert create(f"{package}.alone:Needy", {"x": 1.0}) is not None
        assert answer(f"{package}.alone:Beyond", {}) == (
            "of_mine.alone:Beyond.x is 2.0; it must be a number from 0 to 1. It is the default of "
            "of_mine.alone:Beyond: change it there, or give another value."
        )
        assert create(f"{package}.alone:Beyond", {"x": 1.0}) is not None

    @pytest.mark.parametrize(
        ("attribute", "value", "mend"),
        [
            ("title", 5, "it must be a string with at most 100 characters."),
            ("title", "A title " * 13, "it must be a string with at most 100 characters."),
            ("exchanges", "predictions", "it must be a set."),
            (
                "exchanges",
                frozenset({"gossip"}),
                "it must be one of predictions, parameters, prototypes, similarities, ",
            ),
            ("exchanges", {"predictions"}, "it must be a set."),
            ("one_architecture", "no", "it must be true or false."),
            ("fits_validation", 1, "it must be true or false."),
            ("own_step", None, "it must be true or false."),
            ("needs_public", "yes", "it must be true or false."),
            ("needs_head", "cubic", "one of , layer, linear, biased."),
            ("own_knowledge", "select", "it must be a set."),
            ("ignores", "distillation", "it must be a set."),
            ("own_knowledge", frozenset({5}), "it must be a string."),
            ("paper_name", 3, "it must be a string or null."),
        ],
    )
    def test_the_declarations_of_a_class_are_checked(
        self, package: str, attribute: str, value: Any, mend: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        path = f"{package}.alone:Alone"
        monkeypatch.setattr(find(path).kind, attribute, value)
        said = answer(path, {})
        assert said.startswith(f"{path}: the class attribute {attribute}")
        assert mend in said

    @pytest.mark.parametrize("method", ["Needy", "Beyond"])
    def test_they_are_told_before_anything_is_trained(self, package: str, method: str) -> None:
        """Wherever the method is run: compared, swept, or in the paper."""
        path = f"{package}.alone:{method}"
        plain = {"private": {"source": "digits"}}
        sweep = {"experiment": "mine", "parameter": "rounds", "values": [1], "methods": [path]}
        part = {"title": "t", "experiments": ["mine"], "columns": {"a": {}}, "methods": [path]}
        paper = {"scale": "s", "seeds": [0], "parts": {"table1": part}}
        with pytest.raises(InputError, match=rf"^{path}\.x "):
            parsing.check({"mine": {**plain, "compare": [path]}})
        for name, section in (("sweep_x", sweep), ("paper", paper)):
            with case(name), pytest.raises(InputError, match=rf"{path}\.x "):
                list(parsing.used([name], {"mine": plain, name: section}))
        given = {"mine": {**plain, "methods": {path: {"x": 1.0}}}}
        for name, section in (("sweep_x", sweep), ("paper", paper)):
            assert len(list(parsing.used([name], {**given, name: section}))) == 1

    @pytest.mark.parametrize(
        ("path", "message"),
        [
            ("of_mine.alnoe:Alone", "No module named 'of_mine.alnoe'"),
            ("of_mine.broken:Alone", "ZeroDivisionError: division by zero"),
            ("of_mine.alone:Aloen", "there is no 'Aloen' in of_mine.alone"),
            ("of_mine.alone:Untitled", "has no title: write title = "),
            (
                "of_mine.alone:Plain",
                "Plain is not a dataclass, so tau cannot be set: write @dataclass(frozen=True) above",
            ),
            ("of_mine.alone:Derived", "Plain is not a dataclass, so tau cannot be set"),
            ("of_mine.alone:Constructed", "Constructed is not a dataclass, so what __init__ takes cannot be set"),
            ("of_mine.alone:Unfinished", "is not a method: it must be a class that derives from Personal"),
            ("of_mine.alone:no_class", "is not a method: it must be a class that derives from Personal"),
            ("of_mine.alone.Alone", "is not a dotted path, package.module:name; write of_mine.alone:Alone."),
            ("of_mine/alone.py:Alone", "is not a dotted path, package.module:name; write of_mine.alone:Alone."),
            ("of_mine/alone:Alone", "is not a dotted path, package.module:name; write of_mine.alone:Alone."),
            ("of_mine/alone.py", "method 'of_mine/alone.py' is unknown"),
            ("of_mine..alone", "method 'of_mine..alone' is unknown"),
        ],
    )
    def test_that_leads_nowhere_is_refused(self, package: str, path: str, message: str) -> None:
        with pytest.raises(InputError) as refused:
            create(path)
        assert message in str(refused.value)
        assert path in str(refused.value)
