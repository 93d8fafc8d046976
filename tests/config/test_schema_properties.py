"""Whatever stands in conf/ or --params is taken, with values in their ranges, or refused in a sentence."""

import copy
from typing import Any

import pytest
from cases import case
from experiment import EXPERIMENT, SWEEP
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from ktpfl_pipeline.config import parsing
from ktpfl_pipeline.config.schema import Experiment
from ktpfl_pipeline.core.errors import InputError

TUNE: dict[str, Any] = {
    "trials": 2,
    "seeds": [100],
    "spaces": {"kt_pfl": {"rho": [0.5, 1.0], "step": {"low": 0.1, "high": 1.0, "log": True}}},
}
PARAMETERS = {"mine": EXPERIMENT, "sweep_x": SWEEP, "tune_mine": TUNE}

check = settings(derandomize=True, deadline=None, max_examples=40, suppress_health_check=[HealthCheck.too_slow])
scalars = (
    st.none()
    | st.booleans()
    | st.integers(-3, 3)
    | st.sampled_from([2**31, 2**40, -(2**63), 2**64, 10**30, 10**400, 1e-320, 1e308, -0.0])
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(["digits", "open_part", "npz:a.npz", "auto", "cuda:99", "cuda:" + "9" * 30, "lenet", "iid"])
    | st.sampled_from(["\x1b[2J\n", "a" * 100_000, "\0", "²", "cuda:²", "local"])
)
keys = (
    st.text(max_size=5) | st.sampled_from(["epochs", "rho", "source", "low", "high"]) | st.integers(-1, 1) | st.none()
)
anything = st.recursive(scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3))


def paths(section: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    found = [path] if path else []
    if isinstance(section, dict):
        found += [inner for name, value in section.items() for inner in paths(value, (*path, name))]
    return found


def put(section: Any, path: tuple[Any, ...], value: Any) -> Any:
    section = copy.deepcopy(section)
    place = section
    for name in path[:-1]:
        place = place[name]
    place[path[-1]] = value
    return section


def accepted(made: Any) -> Any | None:
    """Return what `made` makes, None where it refuses in a sentence; any other exception is the test's failure."""
    try:
        return made()
    except InputError as error:
        message = str(error)
        assert message.isprintable()
        assert message
        assert message[-1] in ".?"
        assert len(message) < 4100
        return None


def in_range(experiment: Experiment) -> None:
    assert experiment.seeds
    assert min(experiment.seeds) >= 0
    assert min(experiment.rounds, experiment.clients, experiment.evaluate_every, experiment.public.batch) >= 1
    assert 0 < experiment.participation <= 1
    assert 0 < experiment.partition.test_share < 1
    assert 0 <= experiment.partition.validation_share < 1
    assert 0 < experiment.partition.alpha <= 1e6
    assert experiment.image is None or 1 <= experiment.image.size <= 8192
    assert experiment.shared()


@check
@given(path=st.sampled_from(paths(EXPERIMENT)), value=anything)
@example(path=("training", "learning_rate"), value=10**400)
@example(path=("methods", "kt_pfl", "rho"), value=10**400)
@example(path=("compute", "device"), value="cuda:²")
@example(path=("methods",), value={"kt_pfl": {1: 2}})
def test_any_value_anywhere_in_an_experiment(path: tuple[str, ...], value: Any) -> None:
    experiment = accepted(lambda: parsing.parse("mine", put(EXPERIMENT, path, value)))
    if experiment is not None:
        in_range(experiment)


@check
@given(path=st.sampled_from([(), *paths({k: v for k, v in EXPERIMENT.items() if isinstance(v, dict)})]), key=keys)
def test_any_name_that_no_setting_has(path: tuple[str, ...], key: Any) -> None:
    section = EXPERIMENT
    for name in path:
        section = section[name]
    if isinstance(section, dict) and key not in section:
        accepted(lambda: parsing.parse("mine", put(EXPERIMENT, (*path, key), 1)))


def checked(sections: dict[str, Any]) -> None:
    """Check all sections as a run of all of them does."""
    parsing.check(sections)
    list(parsing.used(list(sections), sections))


@check
@given(values=anything, name=st.sampled_from(["mine", "sweep_x", "tune_mine", "tune_", "sweep_", "other", ""]))
def test_anything_as_a_section(values: Any, name: str) -> None:
    accepted(lambda: checked({**PARAMETERS, name: values}))


@check
@given(path=st.sampled_from(paths(SWEEP)), value=anything | st.lists(st.text("abk_.", max_size=9), max_size=2))
@example(path=("parameter",), value="methods")
@example(path=("parameter",), value="methods.")
@example(path=("parameter",), value="")
@example(path=("values",), value=[[1], [1]])
def test_any_value_in_a_sweep(path: tuple[str, ...], value: Any) -> None:
    accepted(lambda: parsing.parse_sweep("sweep_x", put(SWEEP, path, value), PARAMETERS))


@check
@given(parameter=st.sampled_from([".".join(path) for path in paths(EXPERIMENT)]), values=st.lists(scalars, max_size=3))
def test_any_setting_swept_over_anything(parameter: str, values: list[Any]) -> None:
    changed = {**SWEEP, "parameter": parameter, "values": values}
    sweep = accepted(lambda: parsing.parse_sweep("sweep_x", changed, PARAMETERS))
    if sweep is not None:
        for point in parsing.variants("sweep_x", sweep, PARAMETERS):
            in_range(point)


@check
@given(path=st.sampled_from(paths(TUNE)), value=anything)
@example(path=("spaces", "kt_pfl", "rho"), value={"low": 0, "high": 10**400})
def test_any_value_in_a_tuning(path: tuple[str, ...], value: Any) -> None:
    accepted(lambda: parsing.parse_tune("tune_mine", put(TUNE, path, value), PARAMETERS))


@check
@given(runtime=st.dictionaries(st.text(max_size=4) | st.sampled_from(list(PARAMETERS)), anything, max_size=2))
def test_anything_as_params(runtime: dict[str, Any]) -> None:
    accepted(lambda: checked(parsing.merged(PARAMETERS, runtime)))


def test_a_number_of_5000_digits() -> None:
    """YAML writes it in base 16."""
    for path in ("seeds", "clients", "methods.kt_pfl.rho", "methods.kt_pfl.steps"):
        with case(path):
            for values in (
                put(EXPERIMENT, tuple(path.split(".")), value) for value in (10**5000, -(10**5000), [10**5000])
            ):
                with pytest.raises(InputError, match=r"^mine has a number of more than 4,300 digits"):
                    parsing.parse("mine", values)


def test_a_section_without_a_name() -> None:
    for name in (5, None, 1.5, True):
        message = rf"^A section in conf/ is called {name!r}. Names of sections must be strings: "
        with case(name), pytest.raises(InputError, match=message):
            parsing.merged({**PARAMETERS, name: EXPERIMENT}, {})
