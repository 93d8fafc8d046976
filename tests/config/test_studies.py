"""What may stand under a sweep, a tuning and the paper: each of their settings is one that an experiment could have."""

import re
from typing import Any, ClassVar

import pytest
from cases import case
from experiment import EXPERIMENT, SWEEP, changed

from ktpfl_pipeline.config import parsing, studies
from ktpfl_pipeline.core.errors import InputError

PATH = "ktpfl_pipeline.methods.local:LocalMatched"
"""A method that is given by a dotted path, as one of a user's own is."""


class TestSweep:
    """One setting of an experiment at several values."""

    PARAMETERS: ClassVar[dict[str, Any]] = {"mine": EXPERIMENT, "sweep_x": SWEEP, "_shared": {"rounds": 9}}

    def refusal(self, **changes: Any) -> str:
        with pytest.raises(InputError) as refused:
            parsing.parse_sweep("sweep_x", {**SWEEP, **changes}, self.PARAMETERS)
        return str(refused.value)

    def test_its_points_differ_in_the_one_setting(self) -> None:
        sweep = parsing.parse_sweep("sweep_x", SWEEP, self.PARAMETERS)
        found = parsing.variants("sweep_x", sweep, self.PARAMETERS)
        assert found == [parsing.parse("mine", changed("training.epochs", value)) for value in (1, 5)]

    def test_a_hyperparameter(self) -> None:
        own = {**SWEEP, "parameter": "methods.kt_pfl.rho", "values": [0.1, 2]}
        sweep = parsing.parse_sweep("sweep_x", own, self.PARAMETERS)
        found = [point.methods["kt_pfl"] for point in parsing.variants("sweep_x", sweep, self.PARAMETERS)]
        assert found == [{"rho": rho, "divergence_weight": None} for rho in (0.1, 2)]
        assert (sweep.label(0.1), sweep.touches("kt_pfl"), sweep.touches("local")) == ("rho=0.1", True, False)

    def test_a_hyperparameter_of_a_method_by_its_dotted_path(self) -> None:
        own = {**SWEEP, "parameter": f"methods.{PATH}.work", "values": [0.5, 2.0], "methods": [PATH, "local"]}
        parameters = {"mine": changed("training.privacy", None)}
        sweep = parsing.parse_sweep("sweep_x", own, parameters)
        found = [point.methods[PATH] for point in parsing.variants("sweep_x", sweep, parameters)]
        assert found == [{"work": 0.5}, {"work": 2.0}]
        assert (sweep.label(0.5), sweep.touches(PATH), sweep.touches("local")) == ("work=0.5", True, False)
        with pytest.raises(InputError, match=f"local; add {PATH} to sweep_x.methods"):
            parsing.parse_sweep("sweep_x", {**own, "methods": ["local"]}, parameters)

    def test_hyperparameters_of_several_methods_at_once(self) -> None:
        values = [{"kt_pfl": {"rho": 0.1}}, {"kt_pfl": {"rho": 2.0}}]
        sweep = parsing.parse_sweep("sweep_x", {**SWEEP, "parameter": "methods", "values": values}, self.PARAMETERS)
        assert sweep.touches("kt_pfl")

    def test_a_setting_that_is_not_written_out(self) -> None:
        """What has a default may be swept too."""
        sweep = parsing.parse_sweep("sweep_x", {**SWEEP, "parameter": "distillation.batch_size"}, self.PARAMETERS)
        found = parsing.variants("sweep_x", sweep, self.PARAMETERS)
        assert [point.distillation.batch_size for point in found] == [1, 5]
        assert sweep.touches("kt_pfl")
        assert not sweep.touches("local")  # local-only training does not distill

    def test_what_cannot_be(self) -> None:
        for changes, message in (
            ({"experiment": "mien"}, "sweep_x.experiment is 'mien', which does not exist; did you mean 'mine'?"),
            ({"experiment": "_shared"}, "sweep_x.experiment is '_shared', which does not exist; choose from mine."),
            ({"experiment": "sweep_x"}, "sweep_x.experiment is 'sweep_x', which does not exist; choose from mine."),
            (
                {"parameter": "training.epoch"},
                "sweep_x cannot set training.epoch to 1: mine.training.epoch does not exist; did you mean 'epochs'?",
            ),
            ({"parameter": "rounds.x"}, "sweep_x cannot set rounds.x to 1: mine.rounds is {'x': 1}; it must be"),
            ({"parameter": "methods.kt_pfl.roh"}, "did you mean 'rho'?"),
            ({"parameter": "methods.gossip.rho"}, "'gossip'"),
            (
                {"values": [1, -1]},
                "sweep_x cannot set training.epochs to -1: mine.training.epochs is -1; it must be an integer from "
                "0 to 2,147,483,647.",
            ),
            ({"values": [1, "2"]}, "sweep_x cannot set training.epochs to '2': mine.training.epochs is '2'; it must"),
            ({"values": [5, 1, 5]}, "sweep_x.values has 5 twice; list each item once."),
            ({"values": []}, "sweep_x.values is []; it must be a list with at least 1 item"),
            ({"values": None}, "sweep_x.values is null; it must be a list with at least 1 item."),
            ({"methods": ["kt_pfll"]}, "sweep_x.methods is 'kt_pfll', which does not exist; did you mean 'kt_pfl'?"),
            ({"methods": ["local", "local"]}, "sweep_x.methods has local twice; list"),
            (
                {"parameter": "headline", "values": ["accuracy", "auc"]},
                "sweep_x.parameter is 'headline', and no run depends on this setting; choose one that changes runs",
            ),
            (
                {"parameter": "evaluation.choice.margin", "values": [0.0, 0.1]},
                "sweep_x.parameter is 'evaluation.choice.margin', and no run depends on this setting",
            ),
            ({"methods": []}, "sweep_x.methods is []; it must be a list with at least 1 item"),
            (
                {"parameter": "methods.kt_pfl.rho", "methods": ["local"]},
                "sweep_x.parameter is 'methods.kt_pfl.rho', which changes none of its methods, local; "
                "add kt_pfl to sweep_x.methods.",
            ),
            (
                {"parameter": "knowledge", "values": ["uint8"], "methods": ["local"]},
                "sweep_x.parameter is 'knowledge', which changes none of its methods, local; "
                "add a method that exchanges predictions to sweep_x.methods.",
            ),
            (
                {"parameter": "knowledge.encoding", "values": ["uint8"], "methods": ["local"]},
                "local; add a method that exchanges predictions to sweep_x.methods.",
            ),
            (
                {"parameter": "distillation.epochs", "values": [1, 2], "methods": ["local"]},
                "sweep_x.parameter is 'distillation.epochs', which changes none of its methods, local; "
                "add a method that exchanges predictions to sweep_x.methods.",
            ),
            ({"seeds": [1]}, "sweep_x.seeds does not exist; sweep_x has experiment, parameter, values, methods."),
        ):
            with case(changes):
                assert message in self.refusal(**changes)

    def test_tuned_hyperparameters_are_refused_where_the_sweep_is_run_alone(self) -> None:
        """A comparison may run them beside a sweep that is not asked for."""
        tuned = {**EXPERIMENT, "hyperparameters": "tuned"}
        swept = {**SWEEP, "parameter": "hyperparameters", "values": ["configured", "tuned"]}
        for sections in ({"mine": tuned, "sweep_x": SWEEP}, {"mine": EXPERIMENT, "sweep_x": swept}):
            parsing.check(sections)
            assert [name for name, _ in parsing.used(["mine"], sections)] == ["mine"]
            with case(sections), pytest.raises(InputError) as refused:
                list(parsing.used(["sweep_x"], sections))
            assert str(refused.value) == (
                "mine.hyperparameters is tuned, and a sweep runs configured ones; set it to configured for sweep_x."
            )

    def test_how_values_go_together_is_checked_where_the_sweep_is_run_alone(self) -> None:
        """Each value by itself is checked whatever is run."""
        hostile = {**SWEEP, "parameter": "adversaries.share", "values": [0.2]}
        sections = {"mine": changed("newcomers", 0.2) | {"training": {}}, "sweep_x": hostile}
        parsing.check(sections)
        assert [name for name, _ in parsing.used(["mine"], sections)] == ["mine"]
        with pytest.raises(
            InputError, match=r"^sweep_x cannot set adversaries\.share to 0\.2: mine\.newcomers is 0\.2"
        ):
            list(parsing.used(["sweep_x"], sections))
        for wrong in ({"parameter": "adversaries.shaer"}, {"values": [2.0]}, {"methods": ["kt_pfll"]}):
            with case(wrong), pytest.raises(InputError, match="sweep_x"):
                parsing.check({**sections, "sweep_x": {**hostile, **wrong}})

    def test_no_section(self) -> None:
        for values in (None, 5, "x", []):
            with (
                case(values),
                pytest.raises(InputError, match=r"sweep_x is .*; it must be a section with the settings of a sweep"),
            ):
                parsing.parse_sweep("sweep_x", values, self.PARAMETERS)

    def test_everything_is_checked_and_an_experiment_first(self) -> None:
        """A mistake in an experiment is told as one of the experiment, wherever the sweep over it stands."""
        parsing.check({"sweep_x": SWEEP, "mine": EXPERIMENT})
        with pytest.raises(InputError, match=r"^mine\.clients is 0; it must"):
            parsing.check({"sweep_x": SWEEP, "mine": changed("clients", 0)})
        with pytest.raises(InputError, match=r"^sweep_x\.values has 1 twice"):
            parsing.check({"sweep_x": {**SWEEP, "values": [1, 1]}, "mine": EXPERIMENT})


class TestTune:
    """What may stand under a tuning: nothing is tried that a method would refuse in the middle of a search."""

    PARAMETERS: ClassVar[dict[str, Any]] = {"mine": EXPERIMENT}
    TUNE: ClassVar[dict[str, Any]] = {
        "trials": 8,
        "seeds": 100,
        "spaces": {
            "kt_pfl": {"rho": {"low": 0.1, "high": 10.0, "log": True}, "order": ["paper", "coefficients_first"]}
        },
    }

    def parsed(self, **changes: Any) -> studies.Tune:
        return parsing.parse_tune("tune_mine", {**self.TUNE, **changes}, self.PARAMETERS)

    def test_what_is_given(self) -> None:
        tune = self.parsed()
        assert (tune.trials, tune.seeds) == (8, [100])
        assert tune.space("kt_pfl") == {
            "rho": studies.Range(low=0.1, high=10.0, log=True),
            "order": ["paper", "coefficients_first"],
        }
        assert tune.space("fedmd") == {}
        assert self.parsed(spaces={"kt_pfl": {"rho": 3.0}}).space("kt_pfl") == {"rho": [3.0]}

    def test_trials_run_with_its_seeds_and_are_else_the_experiments(self) -> None:
        experiment = parsing.parse("mine", EXPERIMENT)
        applied = self.parsed().applied(experiment)
        judged = {**experiment.shared()["evaluation"], "adapt_epochs": [0], "global_samples": 0}
        expected = {"seeds": [100], "theorem_samples": 0, "evaluation": judged}
        assert applied.shared() == {**experiment.shared(), **expected}

    def test_what_cannot_be(self) -> None:
        for changes, message in (
            ({"trials": 0}, "tune_mine.trials is 0; it must be an integer from 1 to 2,147,483,647."),
            ({"seeds": [1, 1]}, "tune_mine.seeds has 1 twice; list each item once."),
            ({"spaces": {"kt_pfll": {}}}, "A method of tune_mine.spaces is 'kt_pfll', which does not exist; did you"),
            (
                {"spaces": {"kt_pfl": {"roh": [1.0]}}},
                "spaces.kt_pfl.roh cannot be 1.0: kt_pfl.roh does not exist",
            ),
            ({"spaces": {"kt_pfl": {"rho": [1.0, -1.0]}}}, "tune_mine.spaces.kt_pfl.rho cannot be -1.0: kt_pfl.rho is"),
            ({"spaces": {"kt_pfl": {"rho": None}}}, "it must be a list of values, or a range {low: ..., high: ...}."),
            (
                {"spaces": {"kt_pfl": {"rho": [1.0, 1.0]}}},
                "tune_mine.spaces.kt_pfl.rho has 1.0 twice; list each",
            ),
            (
                {"spaces": {"kt_pfl": {"rho": {"low": 2, "high": 2}}}},
                "tune_mine.spaces.kt_pfl.rho goes from 2 to 2; low must be below high.",
            ),
            (
                {"spaces": {"kt_pfl": {"rho": {"low": 0.0, "high": 2.0, "log": True}}}},
                "tune_mine.spaces.kt_pfl.rho.low is 0.0; with log it must be above 0.",
            ),
            (
                {"spaces": {"kt_pfl": {"steps": {"low": 0, "high": 5}}}},
                "tune_mine.spaces.kt_pfl.steps cannot be 0: kt_pfl.steps is 0; it must be an integer of at least 1.",
            ),
            ({"budget": 3}, "tune_mine.budget does not exist; tune_mine has trials, seeds, spaces."),
        ):
            with case(changes):
                with pytest.raises(InputError) as refused:
                    self.parsed(**changes)
                assert message in str(refused.value)

    def test_a_method_need_not_be_configured(self) -> None:
        """What is compared without a section of its own has its defaults."""
        sections = {"mine": {"private": {"source": "digits"}, "compare": ["fedmd"]}}
        spaces = {"kt_pfl": {"rho": [1.0]}, PATH: {"work": [1.0, 2.0]}}
        assert parsing.parse_tune("tune_mine", {**self.TUNE, "spaces": spaces}, sections).spaces == spaces
        for wrong, message in (
            ({"fedprot": {}}, "is 'fedprot', which does not exist; did you mean 'fedproto'"),
            ({PATH: {"work": [-1.0]}}, f"^tune_mine.spaces.{PATH}.work cannot be -1.0: {PATH}.work is -1.0"),
        ):
            with case(wrong), pytest.raises(InputError, match=message):
                parsing.parse_tune("tune_mine", {**self.TUNE, "spaces": wrong}, sections)

    def test_the_experiment_must_be_there(self) -> None:
        with pytest.raises(
            InputError, match=r"The experiment of tune_mien is 'mien', which does not exist; did you mean"
        ):
            parsing.parse_tune("tune_mien", self.TUNE, self.PARAMETERS)

    def test_everything_is_checked(self) -> None:
        parsing.check({"tune_mine": self.TUNE, "mine": EXPERIMENT})
        with pytest.raises(InputError, match=r"^tune_mine\.trials is 0"):
            parsing.check({"tune_mine": {**self.TUNE, "trials": 0}, "mine": EXPERIMENT})


class TestPaper:
    PART: ClassVar[dict[str, Any]] = {"title": "t", "experiments": ["mine"], "columns": {"a": {}}, "methods": ["local"]}

    def parsed(self, **changes: Any) -> list[Any]:
        given = {"scale": "Small.", "seeds": [0], "parts": {"table1": {**self.PART, **changes.pop("part", {})}}}
        sections = {"mine": EXPERIMENT, "paper": {**given, **changes}}
        return parsing.paper_columns("table1", parsing.parse_paper(sections["paper"], sections), sections)

    def test_a_column_is_the_experiment_with_a_change(self) -> None:
        columns = {"as it is": {}, "long": {"training": {"epochs": 7}}, "left out": None}
        (_, first, same), (name, label, long) = self.parsed(part={"columns": columns}, seeds=[3, 4])
        assert (first, name, label) == ("as it is", "mine", "long")
        assert (same.seeds, long.training.epochs) == ([3, 4], 7)
        assert same.training.epochs != 7

    def test_what_cannot_be(self) -> None:
        for changes, message in (
            ({"only": "table9"}, "paper.only is 'table9', which does not exist; did you mean 'table1'"),
            ({"part": {"experiments": ["nine"]}}, "paper.parts.table1.experiments is 'nine', which does not exist"),
            ({"part": {"methods": ["kt_pfll"]}}, "paper.parts.table1.methods is 'kt_pfll'"),
            ({"part": {"methods": ["local", "local"]}}, "paper.parts.table1.methods"),
            ({"part": {"columns": {"long": {"training": {"epochs": -1}}}}}, "paper.parts.table1.columns, 'long': "),
            ({"part": {"shows": "bars"}}, "paper.parts.table1.shows is 'bars'"),
            ({"part": {"method": []}}, "paper.parts.table1.method does not exist; did you mean 'methods'?"),
            ({"seeds": [1, 1]}, "paper.seeds"),
            (
                {"part": {"columns": {"tuned": {"hyperparameters": "tuned"}}}},
                "paper.parts.table1.columns, 'tuned': mine.hyperparameters is tuned, and the paper runs configured "
                "ones; set it to configured for paper.",
            ),
        ):
            with case(changes), pytest.raises(InputError, match=re.escape(message)):
                self.parsed(**changes)


class TestPaperSettings:
    """What a part, an experiment and the section change for all columns."""

    def test_a_column_changes_what_its_part_changes_and_that_what_the_experiment_changes(self) -> None:
        experiments = {"mine": {"training": {"epochs": 7, "batch_size": 9}}}
        settings = {"training": {"epochs": 8, "learning_rate": 0.5}}
        columns = {"a": {}, "b": {"training": {"epochs": 9}}}
        part = {**TestPaper.PART, "settings": settings, "columns": columns, "seeds": [5]}
        found = [
            (each.training.epochs, each.training.batch_size, each.training.learning_rate, each.seeds)
            for _, _, each in TestPaper().parsed(part=part, experiments=experiments)
        ]
        assert found == [(8, 9, 0.5, [5]), (9, 9, 0.5, [5])]

    def test_files_replace_downloads_only(self) -> None:
        for source, file in (
            ("emnist:letters", "npz:emnist.npz"),
            ("cifar100", "npz:cifar100.npz"),
            ("digits", "digits"),
            ("npz:mine.npz", "npz:mine.npz"),
        ):
            with case(source):
                part = {**TestPaper.PART, "settings": {"public": {"source": source}}}
                for asked in (True, False):
                    ((_, _, found),) = TestPaper().parsed(part=part, files=asked)
                    assert found.public.source == (file if asked else source)

    def test_a_public_source_of_none_is_for_methods_that_exchange_no_predictions(self) -> None:
        own = {"exchange": "parameters", "architectures": ["mlp"], "public": {"source": "none"}}
        part = {**TestPaper.PART, "settings": own}
        ((_, _, found),) = TestPaper().parsed(part=part)
        assert found.public.source == "none"
        with pytest.raises(InputError, match=r"mine.public.source is none, which excludes kt_pfl: public samples"):
            TestPaper().parsed(part={**part, "methods": ["kt_pfl"]})
