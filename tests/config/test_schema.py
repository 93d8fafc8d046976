"""What may stand under an experiment: parsed before anything runs, refused with a sentence that a person can act on."""

import re
from collections.abc import Callable, Iterator
from dataclasses import FrozenInstanceError
from operator import attrgetter
from typing import Any, ClassVar

import pytest
import torch
from bad_settings import IMPOSSIBLE_WITH_PRIVACY, MISSPELT, OUT_OF_RANGE, UNKNOWN
from cases import case
from experiment import EXPERIMENT, REMOVED, SWEEP, changed

from ktpfl_pipeline.config import checks, parsing
from ktpfl_pipeline.config.schema import Experiment
from ktpfl_pipeline.config.studies import Paper, Range, Sweep, Tune
from ktpfl_pipeline.core.augmentation import CHANGES
from ktpfl_pipeline.core.compatibility import problems
from ktpfl_pipeline.core.errors import InputError, written
from ktpfl_pipeline.core.settings import Compute, ExecutorSettings, Ray
from ktpfl_pipeline.core.validation import meanings, parse, plain, rules
from ktpfl_pipeline.methods import create
from ktpfl_pipeline.methods.fedmd import FedMD
from ktpfl_pipeline.methods.kt_pfl import KTpFL


def told(call: Callable[..., Any], *arguments: Any) -> str:
    with pytest.raises(InputError) as refused:
        call(*arguments)
    return str(refused.value)


def refusal(path: str, value: Any) -> str:
    return told(parsing.parse, "mine", changed(path, value))


def excluded(experiment: Experiment, *methods: str) -> str:
    return told(checks.check_methods, "mine", experiment, methods)


def test_what_is_given_is_kept_and_the_rest_is_the_papers() -> None:
    experiment = parsing.parse("mine", EXPERIMENT)
    assert (experiment.rounds, experiment.participation, experiment.training.learning_rate) == (3, 0.8, 0.05)
    assert (experiment.distillation.batch_size, experiment.partition.test_share) == (256, 0.25)


def test_epochs_of_adaptation_are_numbers_in_their_order_and_zero_is_always_there() -> None:
    for given, meant in (
        ([0, 1, "E"], (1, 20)),
        ("0+3+E", (3, 20)),
        ([20, "E", 5], (5, 20)),
        (0, ()),
        ("E", (20,)),
        ([], ()),
    ):
        with case(given):
            assert parsing.parse("mine", changed("evaluation", {"adapt_epochs": given})).evaluation.epochs(20) == meant


def test_one_value_needs_no_brackets() -> None:
    for path, given, meant in (
        ("seeds", 3, [3]),
        ("seeds", [4, 2], [4, 2]),
        ("seeds", "0+1+12", [0, 1, 12]),
        ("private.classes", 3, [3]),
        ("architectures", "mlp", ["mlp"]),
        ("architectures", "lenet+mlp", ["lenet", "mlp"]),
        ("compare", "fedmd", ["fedmd"]),
        ("compare", "all+kt_pfl_authors", ["all", "kt_pfl_authors"]),
    ):
        with case(path, given):
            assert attrgetter(path)(parsing.parse("mine", changed(path, given))) == meant


@pytest.mark.parametrize(("path", "value"), [("compare", "fedmd"), ("exchange", "parameters")])
def test_what_is_compared_is_no_part_of_a_runs_settings(path: str, value: str) -> None:
    one, other = (parsing.form("mine", given) for given in (EXPERIMENT, changed(path, value)))
    assert (one.shared(), one.settings()) == (other.shared(), other.settings())


@pytest.mark.parametrize("method", ["fedavg", "kt_pfl_params"])
def test_a_method_of_one_architecture_compared_beside_several(method: str) -> None:
    with pytest.raises(InputError, match=f"excludes .*{method}.*: models are combined, which needs one architecture"):
        list(parsing.used(["mine"], {"mine": changed("compare", method)}))
    one = {**changed("compare", method), "architectures": "mlp", "training": {}}
    assert [name for name, _ in parsing.used(["mine"], {"mine": one})] == ["mine"]


def test_only_the_source_of_the_samples_must_be_said() -> None:
    experiment = parsing.parse("mine", {"private": {"source": "digits"}})
    assert (experiment.seeds, experiment.architectures, experiment.image) == ([0], ["mlp"], None)
    assert (experiment.public.source, experiment.partition.scheme, experiment.methods) == ("open_part", "dirichlet", {})


def test_whole_numbers_do_for_fractions() -> None:
    assert parsing.parse("mine", changed("participation", 1)).participation == 1.0
    assert parsing.parse("mine", changed("methods.kt_pfl.rho", 1)).methods["kt_pfl"] == {
        "rho": 1,
        "divergence_weight": None,
    }


def test_nothing_changes_afterwards() -> None:
    with pytest.raises(FrozenInstanceError):
        parsing.parse("mine", EXPERIMENT).training.epochs = 5


def test_what_methods_share_leaves_their_hyperparameters_out() -> None:
    """Two experiments that differ in a hyperparameter alone are comparable; those that differ in anything else not."""
    shared = parsing.parse("mine", EXPERIMENT).shared()
    assert "methods" not in shared
    assert shared == parsing.parse("mine", changed("methods.kt_pfl.rho", 0.1)).shared()
    for path, value in {"rounds": 4, "training.epochs": 2, "public.batch": 61, "compute.threads": 2}.items():
        assert shared != parsing.parse("mine", changed(path, value)).shared(), path


def test_samples_per_client_are_what_an_open_part_leaves() -> None:
    """float64 computes 21 / (1 - 0.3) = 30.000000000000004."""
    given = {"source": "digits", "samples_per_client": 7}
    for clients, share, samples in ((3, 0.3, 30), (3, 0.25, 28), (3, 0.01, 22)):
        with case(clients, share):
            public = {"source": "open_part", "share": share}
            experiment = parsing.form("mine", {"private": given, "public": public, "clients": clients})
            assert experiment.private_samples(1000) == samples
            assert experiment.private_samples(10) == 10


def test_a_setting_that_does_not_exist() -> None:
    for path, value, mend in MISSPELT:
        with case(path):
            assert refusal(path, value) == f"mine.{path} does not exist; {mend}"


def test_a_value_that_cannot_be() -> None:
    for path, value, rule in OUT_OF_RANGE:
        with case(path, value):
            message = refusal(path, value)
            assert message.startswith(f"mine.{path} is {written(value)}; it must be ")
            assert rule in message
            assert message.endswith(".")
            assert ". " not in message, "one sentence"


def test_a_wrong_part_of_a_list() -> None:
    for path, value, message in (
        ("seeds", -1, "mine.seeds is -1; it must be an integer from 0 to 9,223,372,036,854,775,807."),
        ("seeds", [1.5], "mine.seeds.0 is 1.5; it must be an integer from 0 to 9,223,372,036,854,775,807."),
        ("seeds", "first", "mine.seeds is 'first'; it must be an integer from 0 to 9,223,372,036,854,775,807."),
        ("seeds", "0+one", "mine.seeds is '0+one'; it must be an integer from 0 to 9,223,372,036,854,775,807."),
        ("seeds", [-1], "mine.seeds.0 is -1; it must be an integer from 0 to 9,223,372,036,854,775,807."),
        ("seeds", "0+1+0", "mine.seeds has 0 twice; list each item once."),
        ("seeds", True, "mine.seeds is true; it must be an integer from 0 to 9,223,372,036,854,775,807."),
        ("seeds", [3, 0, 3], "mine.seeds has 3 twice; list each item once."),
        ("private.classes", [1, "two"], "mine.private.classes.1 is 'two'; it must be an integer."),
        ("architectures", ["lenet", 5], "mine.architectures.1 is 5; it must be a string."),
        (
            "architectures",
            ["lenet", False],
            "mine.architectures.1 is false (YAML reads yes, no, on and off as true and false; quotes make a string); "
            "it must be a string.",
        ),
    ):
        with case(path, value):
            assert refusal(path, value) == message


def test_a_name_that_does_not_exist() -> None:
    for path, value, named, mend in UNKNOWN:
        with case(path, value):
            message = refusal(path, value)
            assert f"mine.{path}" in message
            assert named in message
            assert mend in message


def test_a_name_that_was_to_be_a_dotted_path() -> None:
    for path, given, meant in (
        ("architectures", ["my_package.nets.wide"], "my_package.nets:wide"),
        ("architectures", ["my_package/nets.py:wide"], "my_package.nets:wide"),
        ("compare", ["my_package/prior.py:Prior"], "my_package.prior:Prior"),
        ("private.source", "my_package.sources.load", "my_package.sources:load"),
        ("public.source", "my_package.sources.load", "my_package.sources:load"),
    ):
        with case(path, given):
            named = given if isinstance(given, str) else given[0]
            message = f"mine.{path} is {named!r}, which is not a dotted path, package.module:name; write {meant}."
            assert refusal(path, given) == message


def test_a_method_named_by_dots_only() -> None:
    assert refusal("methods.my_package", {"prior": {"Prior": {"k": 3}}}) == (
        "mine.methods.my_package names no method. Write a method of your own with a colon before its class, for "
        "example mine.methods.my_package.prior:Prior.k=3."
    )


def test_a_file_without_the_name_of_its_source() -> None:
    for given, meant in (
        ("mine.npz", "'npz:mine.npz'"),
        ("my/mine.npz", "'npz:my/mine.npz'"),
        ("mine.csv", "'table:mine.csv' or 'text:mine.csv'"),
    ):
        for path in ("private.source", "public.source"):
            with case(path, given):
                message = f"mine.{path}: source {given!r} is unknown: a file of your own is given as {meant}."
                assert refusal(path, given) == message


def test_a_method_that_does_not_exist() -> None:
    for method, mend in (
        ("kt_pfll", "did you mean 'kt_pfl'?"),
        ("gossip", "choose from kt_pfl, "),
        ("mine:Nearest", "No module named 'mine'"),
    ):
        with case(method):
            message = refusal(f"methods.{method}", {})
            assert repr(method) in message
            assert mend in message


def test_a_hyperparameter_that_means_nothing() -> None:
    for name, value, rule in (
        ("update", "egg", "eg, pgd"),
        ("rho", -0.1, "at least 0"),
        ("steps", 0, "at least 1"),
        ("order", "none", "paper"),
    ):
        with case(name):
            message = refusal(f"methods.kt_pfl.{name}", value)
            assert f"kt_pfl.{name} is {value!r}" in message
            assert rule in message


def test_every_setting_has_a_meaning() -> None:
    for kind in (*groups_of(Experiment), Sweep, Tune, Range, *groups_of(Paper), *CHANGES.values()):
        assert {*rules(kind)} <= {*meanings(kind)}, kind


def groups_of(kind: type) -> Iterator[type]:
    yield kind
    for rule in rules(kind).values():
        for group in rule.groups:
            yield from groups_of(group)


def test_what_is_impossible_with_privacy() -> None:
    for path, value, reason in IMPOSSIBLE_WITH_PRIVACY:
        with case(path, value):
            assert refusal(path, value).startswith(reason)
            without = changed(path, value)
            without["training"]["privacy"] = None
            assert parsing.parse("mine", without).training.privacy is None


class TestRecipes:
    def test_what_does_not_go_together_is_refused(self) -> None:
        for training, message in (
            ({"momentum": 0.9, "optimizer": "adam"}, r"mine\.training\.momentum is 0\.9, which belongs to sgd"),
            ({"nesterov": True}, r"mine\.training\.nesterov is true but momentum is 0"),
            ({"optimizer_state": "kept"}, r"mine\.training\.optimizer_state is kept, but sgd without momentum"),
            (
                {"schedule": {"kind": "step", "floor": 0.1}},
                r"mine\.training\.schedule\.floor belongs to the kind",
            ),
            ({"clip": 1.0}, r"mine\.training\.clip is 1\.0, but privacy already clips"),
        ):
            with case(training), pytest.raises(InputError, match=f"^{message}"):
                parsing.parse("mine", {**EXPERIMENT, "training": {**EXPERIMENT["training"], **training}})

    def test_colors_need_channels(self) -> None:
        values = changed("training.augmentation", ["flip", "color_jitter"]) | {"image": {"channels": 4, "size": 28}}
        with pytest.raises(InputError, match=r"^mine\.training\.augmentation has color_jitter, .* have 4 channels"):
            parsing.parse("mine", values)

    def test_words_stand_for_what_they_mean(self) -> None:
        short = {"schedule": "cosine", "augmentation": "crop+flip"}
        long = {"schedule": {"kind": "cosine"}, "augmentation": [{"crop": {"padding": 4}}, {"flip": {"p": 0.5}}]}
        parsed = [parsing.parse("mine", {**EXPERIMENT, "training": values}).training for values in (short, long)]
        assert parsed[0] == parsed[1]

    def test_what_is_not_known_is_refused(self) -> None:
        for training, message in (
            ({"augmentation": ["mixup"]}, "it must be one of crop, flip, color_jitter, rand_augment"),
            ({"augmentation": [{"crop": {}, "flip": {}}]}, "it must be one of crop, flip"),
            ({"augmentation": [3]}, "it must be one of crop, flip"),
            ({"augmentation": [{"flip": False}]}, r"augmentation\.0\.flip is false; it must be a group"),
            ({"augmentation": [{"crop": 0}]}, r"augmentation\.0\.crop is 0; it must be a group"),
            (
                {"augmentation": [{"crop": {"pad": 1}}]},
                r"0\.crop\.pad does not exist; did you mean 'padding'",
            ),
            ({"schedule": "exponential"}, "one of constant, step, cosine"),
            ({"schedule": {"kind": "step", "factor": 0}}, "above 0"),
            ({"schedule": {"warmup": 1}}, r"mine\.training\.schedule\.warmup does not exist; did you mean 'warm_up'"),
        ):
            with case(training), pytest.raises(InputError, match=message):
                parsing.parse("mine", {**EXPERIMENT, "training": training})

    @pytest.mark.parametrize(
        ("methods", "named"),
        [(["fedavg", "ditto"], "ditto"), (["apple", "pfedme"], "apple, pfedme")],
    )
    def test_methods_with_steps_of_their_own_are_named(self, methods: list[str], named: str) -> None:
        values = {**EXPERIMENT, "architectures": ["mlp"], "training": {"momentum": 0.9}}
        experiment = parsing.parse("mine", values)
        message = f"mine.training.momentum is 0.9, which excludes {named}: "
        assert excluded(experiment, *methods).startswith(message)
        checks.check_methods("mine", experiment, ["fedavg", "fml", "fedproto", "local"])


class TestPrivacyBesideMethods:
    """Its ε would not cover what some of them do."""

    @pytest.mark.parametrize(
        ("methods", "named"),
        [
            (["kt_pfl", "fedproto", "local"], "fedproto"),
            (["kt_pfl_likelihood", "fml"], "kt_pfl_likelihood, fml"),
        ],
    )
    def test_they_are_refused(self, methods: list[str], named: str) -> None:
        message = f"mine.training.privacy is set, which excludes {named}: private samples"
        assert excluded(parsing.parse("mine", EXPERIMENT), *methods).startswith(message)

    def test_others_are_not(self) -> None:
        for experiment, *methods in ((EXPERIMENT, "kt_pfl", "fedmd"), (changed("training.privacy", None), "fedproto")):
            assert not any(problems(create(method), parsing.parse("mine", experiment)) for method in methods)

    def test_a_sweep_is_refused_too(self) -> None:
        sweep = {**SWEEP, "methods": ["kt_pfl", "fedproto"]}
        with pytest.raises(InputError, match="excludes fedproto: private samples"):
            parsing.parse_sweep("sweep_x", sweep, {"mine": EXPERIMENT})


@pytest.mark.parametrize("device", ["cuda", "cuda:0", "cuda:7"])
def test_a_gpu_that_is_not_there(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    message = f"mine.compute.device is {device!r} and torch finds no GPUs here; choose auto or cpu."
    assert refusal("compute.device", device) == message


def test_several_workers_have_one_thread_each() -> None:
    message = refusal("compute", {"threads": 2, "executor": {"processes": 3}})
    assert message.startswith("mine.compute.executor has 3 processes, but compute.threads is 2, ")
    assert "; choose serial" in message


@pytest.mark.parametrize("key", ["workers", "cluster"])
def test_the_message_for_a_removed_setting_names_its_replacement(key: str) -> None:
    why = f"mine.compute.{key} does not exist any more. Set compute.executor, for example to serial, processes, "
    assert refusal("compute", {key: 2}).startswith(why)


@pytest.mark.parametrize(
    ("executor", "name", "rule"),
    [
        ({"processes": 0}, "processes is 0", "auto or an integer from 1 to 256"),
        ({"processes": "many"}, "processes is 'many'", "auto or an integer from 1 to 256"),
        ({"ray": {"workers": True}}, "ray.workers is true", "auto or an integer from 1 to 256"),
        ({"ray": {"gpus_per_worker": 1.5}}, "ray.gpus_per_worker is 1.5", "a share of one GPU, or an integer"),
    ],
)
def test_a_wrong_setting_of_an_executor_is_named(executor: Any, name: str, rule: str) -> None:
    assert refusal("compute.executor", executor).startswith(f"mine.compute.executor.{name}; it must be {rule}")


@pytest.mark.parametrize(
    ("value", "processes", "ray"),
    [
        ("serial", None, None),
        ("processes", "auto", None),
        ({"processes": None}, "auto", None),
        ({"processes": 4}, 4, None),
        ("ray", None, Ray()),
        ({"ray": "auto"}, None, Ray("auto")),
        ({"ray": {"workers": 8, "gpus_per_worker": 0.5}}, None, Ray("local", 8, 0.5)),
    ],
)
def test_forms_of_the_executor(value: Any, processes: Any, ray: Ray | None) -> None:
    found = parse(Compute, {"executor": value}, "compute")
    assert found.executor == ExecutorSettings(processes, ray)
    assert parse(Compute, plain(found), "compute") == found


def test_a_cluster_is_checked_before_it_is_joined() -> None:
    message = refusal("compute", {"device": "cpu", "executor": {"ray": "lokal"}})
    assert message.startswith("mine.compute.executor has ray at 'lokal'; choose local, auto")


def test_a_gpu_that_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    for device in ("cuda", "cuda:0", "cuda:1"):
        assert parsing.parse("mine", changed("compute.device", device)).compute.device == device
    assert "'cuda:2'" in refusal("compute.device", "cuda:2")


def test_a_missing_section() -> None:
    for path in ("private", "private.source", "image.size"):
        with case(path):
            message = f"mine.{path} is missing; set it in conf/ or with --params mine.{path}=..."
            assert refusal(path, REMOVED) == message


def test_an_experiment_that_is_no_section() -> None:
    for values in (None, 5, "x", []):
        with case(values), pytest.raises(InputError, match=r"mine is .*; it must be a section"):
            parsing.parse("mine", values)


def test_several_architectures_where_models_are_combined() -> None:
    assert refusal("exchange", "parameters") == (
        "mine.architectures is lenet, mlp, which excludes kt_pfl_params: models are combined, which needs one "
        "architecture. Set one architecture, as in [lenet], or choose methods that exchange predictions. A comparison "
        "always has kt_pfl_params; with exchange: predictions it has kt_pfl in its place."
    )
    assert "with exchange: parameters it has kt_pfl_params in its place" in refusal("public.source", "none")
    for one in (["mlp"], ["mlp", "mlp"]):
        given = {**changed("architectures", one), "exchange": "parameters"}
        assert parsing.parse("mine", given).architectures == one


def test_several_wrong_values_are_all_named() -> None:
    wrong = {**changed("clients", 0), "rounds": -2}
    with pytest.raises(InputError, match=r"mine\.rounds is -2; .*mine\.clients is 0;"):
        parsing.parse("mine", wrong)


def test_where_hyperparameters_are_from_is_no_part_of_a_runs_settings() -> None:
    """A run depends on their values alone; a comparison must have all of them from one place."""
    configured, tuned = parsing.parse("mine", EXPERIMENT), parsing.parse("mine", changed("hyperparameters", "tuned"))
    assert configured.shared() == tuned.shared()
    assert configured.settings() != tuned.settings()
    assert refusal("hyperparameters", "guessed").startswith("mine.hyperparameters is 'guessed'; it must be")


class TestMerged:
    """The values of --params in the place of the configured ones."""

    CONFIGURED: ClassVar[dict[str, Any]] = {
        "mine": {"rounds": 3, "training": {"epochs": 1, "batch_size": 8}},
        "_shared": {"rounds": 9},
    }

    def test_at_any_depth(self) -> None:
        merged = parsing.merged(self.CONFIGURED, {"mine": {"training": {"epochs": 7}, "methods": {"kt_pfl": {}}}})
        assert merged == {"mine": {"rounds": 3, "training": {"epochs": 7, "batch_size": 8}, "methods": {"kt_pfl": {}}}}
        assert self.CONFIGURED["mine"] == {"rounds": 3, "training": {"epochs": 1, "batch_size": 8}}

    def test_of_a_sweep(self) -> None:
        configured = {"sweep_x": SWEEP, **self.CONFIGURED}
        assert parsing.merged(configured, {"sweep_x": {"experiment": "other"}})["sweep_x"]["experiment"] == "other"
        message = told(parsing.merged, configured, {"rounds": 3})
        assert re.search(r"as in mine\.rounds=.*, with one of sweep_x, mine\.$", message)

    def test_without_an_experiment(self) -> None:
        message = told(parsing.merged, self.CONFIGURED, {"rounds": 3})
        assert message.startswith("--params rounds=... names no experiment and no sweep; ")
        assert " as in mine.rounds=..." in message

    def test_of_an_experiment_that_does_not_exist(self) -> None:
        message = told(parsing.merged, self.CONFIGURED, {"mien": {"rounds": 3}})
        assert message == "--params mien=... names no experiment and no sweep; did you mean 'mine'?"


class TestCreateMethod:
    def test_defaults_and_changes(self) -> None:
        assert create("fedmd", {}) == FedMD()
        assert create("kt_pfl", {"rho": 0.5, "steps": 3}) == KTpFL(rho=0.5, steps=3)

    def test_a_preset_keeps_what_is_not_changed(self) -> None:
        """A preset differs from the method's own defaults, and one changed value must not bring those back."""
        method = create("kt_pfl_paper_literal", {"rho": 0.1})
        assert (method.rho, method.update, method.steps) == (0.1, "pgd", 1)


def test_methods_of_one_architecture_beside_several() -> None:
    experiment = parsing.parse("mine", changed("architectures", ["lenet", "mlp"]))
    message = "mine.architectures is lenet, mlp, which excludes fedavg, ditto: models are"
    assert excluded(experiment, "fedavg", "local", "ditto").startswith(message)
    checks.check_methods("mine", experiment, ["fedmd", "local"])


class TestKnowledge:
    def test_a_bare_word_is_the_encoding(self) -> None:
        (word, group) = (
            parsing.parse("mine", {**EXPERIMENT, "knowledge": given}).knowledge
            for given in ("uint8", {"encoding": "uint8"})
        )
        assert word == group
        assert (word.encoding, word.cache, word.select) == ("uint8", 0, 1.0)

    def test_what_cannot_be(self) -> None:
        for given in ({"bits": 8}, "zip", 8):
            with case(given), pytest.raises(InputError, match=r"mine\.knowledge"):
                parsing.parse("mine", {**EXPERIMENT, "knowledge": given})

    def test_beside_a_method_with_a_rule_of_its_own(self) -> None:
        experiment = parsing.parse("mine", {**EXPERIMENT, "knowledge": {"cache": 2, "encoding": "uint8"}})
        checks.check_methods("mine", experiment, ["kt_pfl", "fedmd", "local"])
        message = "mine.knowledge.cache is 2, which excludes scarlet: the method has its own rule"
        assert excluded(experiment, "kt_pfl", "scarlet", "local").startswith(message)

    def test_a_whole_section_is_a_value_of_a_sweep(self) -> None:
        given = {"experiment": "mine", "parameter": "knowledge", "values": ["sign", {"cache": 2}], "methods": ["fedmd"]}
        sweep = parsing.parse_sweep("sweep_x", given, {"mine": EXPERIMENT, "sweep_x": given})
        found = [point.knowledge for point in parsing.variants("sweep_x", sweep, {"mine": EXPERIMENT})]
        assert [(each.encoding, each.cache) for each in found] == [("sign", 0), ("float32", 2)]
        assert [*map(sweep.label, sweep.values)] == ["knowledge=sign", "cache=2"]

    def test_where_models_are_exchanged(self) -> None:
        given = {**EXPERIMENT, "architectures": ["mlp"], "exchange": "parameters"}
        parsing.parse("mine", {**given, "knowledge": "float32"})
        message = told(parsing.parse, "mine", {**given, "knowledge": {"cache": 2}})
        assert message.startswith("mine.knowledge.cache is about sending predictions, but exchange is")


class TestAdversaries:
    GIVEN: ClassVar[dict[str, Any]] = changed("adversaries", {"share": 0.2})

    def test_methods_on_predictions_meet_them(self) -> None:
        given = parsing.parse("mine", self.GIVEN)
        assert not any(problems(create(method), given) for method in ("kt_pfl", "fedmd", "local"))

    @pytest.mark.parametrize("share", [-0.1, 1.0])
    def test_a_share_that_is_none(self, share: float) -> None:
        assert f"mine.adversaries.share is {share}" in refusal("adversaries", {"share": share})

    def test_leaves_a_benign_client(self) -> None:
        given = changed("adversaries", {"share": 0.9})
        parsing.parse("mine", {**given, "clients": 6})
        assert told(parsing.parse, "mine", {**given, "clients": 4}) == (
            "mine.adversaries.share is 0.9, which is 4 of 4 clients; take a share that leaves at least one benign "
            "client, or 0."
        )

    def test_beside_methods_that_exchange_more(self) -> None:
        experiment = parsing.parse("mine", self.GIVEN)
        assert excluded(experiment, "kt_pfl", "kt_pfl_likelihood", "fedproto", "fedmd").startswith(
            "mine.adversaries.share is 0.2, which excludes kt_pfl_likelihood, fedproto: malicious clients upload false "
            "predictions"
        )

    def test_where_models_are_exchanged(self) -> None:
        given = {**self.GIVEN, "architectures": ["mlp"], "exchange": "parameters"}
        with pytest.raises(InputError, match=r"^mine\.adversaries\.share is 0\.2, which excludes kt_pfl_params"):
            parsing.parse("mine", given)

    def test_in_a_sweep(self) -> None:
        sweep = {"experiment": "mine", "parameter": "adversaries.share", "values": [0.0, 0.2], "methods": ["feddf"]}
        with pytest.raises(InputError, match=r"which excludes feddf: "):
            parsing.parse_sweep("sweep_x", sweep, {"mine": EXPERIMENT, "sweep_x": sweep})
