"""Private local training: clipping and noise by hand, its ε, and what is refused."""

import re
import shutil
from contextlib import closing, nullcontext
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import torch
import torch.nn.functional as F
import toy
from torch import Tensor, nn

from ktpfl_pipeline.core import engine, errors, kinds, privacy
from ktpfl_pipeline.core.client import dp_sgd, operations, sgd
from ktpfl_pipeline.core.client.workspace import Workspace
from ktpfl_pipeline.core.engine import Observer, Run, Schedule
from ktpfl_pipeline.core.errors import InputError
from ktpfl_pipeline.core.executors.processes import ProcessesExecutor
from ktpfl_pipeline.core.federation import Federation
from ktpfl_pipeline.core.settings import Budgets, Compute, LocalTraining, Privacy, Reliability
from ktpfl_pipeline.core.weights import Params, select
from ktpfl_pipeline.methods import METHODS, create

CPU = torch.device("cpu")
N = 3  # a client with 16 training images
ALL = 100  # of a batch: everything, in each step
HUGE = 1e6  # a norm that no gradient has


@dataclass(frozen=True)
class Noiseless(Privacy):
    """Clipping without noise, which closed forms need and the settings refuse: its ε would be infinite."""

    noise_multiplier: float = 0.0


class Scaled(nn.Module):
    """Scales 64 features, in a way that Opacus may not follow."""

    def __init__(self, layer: str) -> None:
        super().__init__()
        self.layer = layer
        if layer == "around":
            self.inner = nn.Linear(64, 64)
        elif layer != "counting":
            self.factors = nn.Parameter(torch.ones(64))
        if layer == "buffered":
            self.register_buffer("offset", torch.zeros(64))

    def forward(self, x: Tensor) -> Tensor:
        if self.layer == "around":
            return F.linear(x, self.inner.weight, self.inner.bias)
        if self.layer == "counting":
            return x * (1 + 0 * float(x.sum()))
        return F.dropout(x, 0.5, self.training and self.layer == "random") * self.factors


class Recurrent(nn.Module):
    """A recurrent layer over the rows of an image."""

    def __init__(self) -> None:
        super().__init__()
        self.gru = nn.GRU(8, toy.CLASSES, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.gru(x[:, 0])[0][:, -1]
        return found


def federation(
    privacy: Privacy | None, batch_size: int = ALL, epochs: int = 1, architecture: str = "linear", **settings: Any
) -> Federation:
    training = LocalTraining(epochs, batch_size, 0.1, privacy=privacy)
    return toy.alike(architecture, **{"training": training, "dtype": "float64", **settings})


def trained(fed: Federation, t: int = 1, n: int = N) -> Params:
    return dp_sgd.train(Workspace(fed), n, fed.initial_models()[n], t).value


def vector(params: Params) -> Tensor:
    return torch.cat([tensor.flatten() for tensor in params.values()])


def gradients_by_hand(fed: Federation, n: int = N) -> Tensor:
    """Return each training image's gradient of a linear model's cross-entropy, (p - y) xᵀ and p - y, (D, d)."""
    weight, bias = fed.initial_models()[n].values()
    own = fed.by_id[n].train
    x = own.inputs.flatten(1).double() / 127.5 - 1
    error = torch.softmax(x @ weight.T + bias, dim=1) - F.one_hot(own.labels, toy.CLASSES)
    return torch.cat([(error[:, :, None] * x[:, None, :]).flatten(1), error], dim=1)


class TestStep:
    """One step on all images, on a model whose gradients can be written down."""

    def test_each_gradient_is_clipped_before_they_are_added_up(self) -> None:
        fed = federation(Noiseless(0.0, 1.0))
        own = gradients_by_hand(fed)
        norms = own.norm(dim=1)
        bound = float(norms.median())
        fed = federation(Noiseless(0.0, bound))
        clipped = own * (bound / norms).clamp(max=1.0)[:, None]
        assert 0 < (norms > bound).sum() < len(norms)
        moved = vector(fed.initial_models()[N]) - vector(trained(fed))
        assert torch.allclose(moved, 0.1 * clipped.mean(dim=0), rtol=0, atol=1e-6)  # Opacus adds 1e-6 to the norm
        assert not torch.allclose(moved, 0.1 * own.mean(dim=0), rtol=0, atol=1e-3)

    @pytest.mark.parametrize("bound", [0.5, 2.0])
    def test_noise_has_the_standard_deviation_that_is_stated(self, bound: float) -> None:
        """σC / D in the mean of the gradients; 20 rounds of 195 numbers."""
        sigma = 3.0
        still = vector(trained(federation(Noiseless(0.0, bound))))
        fed = federation(Privacy(sigma, bound))
        noise = torch.stack([vector(trained(fed, t)) - still for t in range(1, 21)]) * 16 / (0.1 * bound * sigma)
        assert noise.std() == pytest.approx(1.0, abs=0.035)  # three standard errors
        assert noise.mean() == pytest.approx(0.0, abs=0.05)
        correlations = torch.corrcoef(noise) - torch.eye(20)
        assert correlations.abs().max() < 0.3  # no round has another's noise

    def test_without_noise_and_clipping_it_is_local_training(self) -> None:
        fed = federation(Noiseless(0.0, HUGE), epochs=4)
        plain = operations.train(Workspace(fed), N, fed.initial_models()[N], 1)
        private = dp_sgd.train(Workspace(fed), N, fed.initial_models()[N], 1)
        assert torch.allclose(vector(private.value), vector(plain.value), rtol=0, atol=1e-12)
        assert float(private.loss) == pytest.approx(float(plain.loss), abs=1e-12)

    def test_drawn_batches_are_divided_by_their_expected_size(self) -> None:
        """The same batches by plain gradients; 16 images in steps of 4 on average."""
        fed = federation(Noiseless(0.0, HUGE), batch_size=4, epochs=2)
        space, own = Workspace(fed), fed.by_id[N].train
        module = space.module(N, fed.initial_models()[N])
        stream = fed.stream("private sampling", 1, N)
        sizes = []
        for batch in [*dp_sgd.poisson(16, 4, 0.25, stream, CPU), *dp_sgd.poisson(16, 4, 0.25, stream, CPU)]:
            sizes.append(len(batch))
            if len(batch):
                loss = F.cross_entropy(module(space.numbers(own.inputs[batch])), own.labels[batch], reduction="sum") / 4
                sgd.step(
                    list(module.parameters()), torch.autograd.grad(loss, list(module.parameters())), learning_rate=0.1
                )
        assert len(set(sizes)) > 2
        assert torch.allclose(vector(trained(fed)), vector(module.state_dict()), rtol=0, atol=1e-12)

    def test_a_few_images_at_a_time_give_the_same(self, monkeypatch: pytest.MonkeyPatch) -> None:
        fed = federation(Privacy(1.0), epochs=3, architecture="mlp")
        plain = federation(Privacy(1.0), epochs=3)
        whole = trained(plain)
        monkeypatch.setattr(dp_sgd, "AT_ONCE", 5 * 195)
        assert torch.allclose(vector(trained(plain)), vector(whole), rtol=0, atol=1e-12)
        assert vector(trained(fed)).isfinite().all()  # with dropout, whose masks are others

    def test_a_step_on_no_image_is_noise(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Who saw nothing in that step would otherwise tell that nobody was drawn."""
        monkeypatch.setattr(dp_sgd, "poisson", lambda *_: iter([torch.empty(0, dtype=torch.long)]))
        fed = federation(Privacy(2.0))
        moved = (vector(trained(fed)) - vector(fed.initial_models()[N])) * 16 / (0.1 * 2.0)
        assert moved.std() == pytest.approx(1.0, abs=0.15)
        still = federation(Noiseless(0.0))
        assert torch.equal(vector(trained(still)), vector(still.initial_models()[N]))

    def test_every_image_is_drawn_by_itself(self) -> None:
        drawn = torch.zeros(4000, 20)
        for step, batch in enumerate(dp_sgd.poisson(20, 4000, 0.25, torch.Generator().manual_seed(0), CPU)):
            drawn[step, batch] = 1
        assert torch.allclose(drawn.mean(dim=0), torch.tensor(0.25), atol=0.03)
        assert drawn.sum(dim=1).var() == pytest.approx(20 * 0.25 * 0.75, rel=0.1)  # a fixed size would have none

    def test_activations_in_place_train_as_others(self) -> None:
        def build(in_place: bool) -> nn.Module:
            return nn.Sequential(nn.Flatten(), nn.Linear(64, 4), nn.ReLU(in_place), nn.Linear(4, toy.CLASSES))

        feds = [federation(Privacy(1.0), build=lambda _, each=each: build(each)) for each in (False, True)]
        assert toy.same(trained(feds[0]), trained(feds[1]))
        space = Workspace(feds[1])
        dp_sgd.train(space, N, feds[1].initial_models()[N], 1)
        assert space.module(N, feds[1].initial_models()[N])[2].inplace  # type: ignore[index, union-attr]

    def test_a_module_is_left_as_it_was(self) -> None:
        fed = federation(Privacy(1.0), architecture="mlp")
        space, model = Workspace(fed), fed.initial_models()[N]
        before = operations.train(Workspace(fed), N, model, 1)
        dp_sgd.train(space, N, model, 1)
        assert toy.same(operations.train(space, N, model, 1), before)
        module = space.module(N, model)
        assert not any(hasattr(parameter, "grad_sample") for parameter in module.parameters())
        assert not any(part._forward_hooks or part._backward_hooks for part in module.modules())


class TestRun:
    """Whole runs of KT-pFL."""

    SCHEDULE = Schedule(rounds=3, participation=0.6, evaluate_every=3)

    def run(self, file: Path | None = None, **changes: Any) -> Run:
        made = federation(Privacy(1.0), 8, architecture="mlp", dtype="float32")
        fed = toy.again(made, **changes)
        keep = Observer(round=lambda record: file and shutil.copy(file, file.with_suffix(f".{record.round}")))
        with closing(fed.executor):
            return engine.run(create("kt_pfl"), fed, self.SCHEDULE, checkpoint_file=file, observer=keep)

    def test_resumes_repeats_and_is_shared_out_to_the_bit(self, tmp_path: Path) -> None:
        file = tmp_path / "run.ckpt"
        straight = self.run(file)
        others = [self.run(executor=ProcessesExecutor(2))]
        shutil.copy(file.with_suffix(".1"), file)
        for other in (*others, self.run(file)):
            assert toy.same(other.state, straight.state)
            assert [r.epsilon for r in other.history] == [r.epsilon for r in straight.history]
        assert not toy.same(self.run(seed=1).state, straight.state)
        self.check_spent(straight)

    @staticmethod
    def check_spent(run: Run) -> None:
        """Check that the history has what each client spent: more in the rounds in which it trained."""
        assert len(set(run.history[-1].epsilon)) > 1
        for before, after in pairwise(run.history):
            for n, then, now in zip(toy.IDS, before.epsilon, after.epsilon, strict=True):
                assert (now > then) == (n in after.cohort)

    def test_adam_takes_the_private_gradients_and_keeps_its_moments(self) -> None:
        """Without noise and clipping, and with all images in each step, it is local training; augmented, it repeats."""

        def trained(privacy: Privacy | None, **changes: Any) -> tuple[Any, Any]:
            recipe: dict[str, Any] = {"optimizer": "adam", "optimizer_state": "kept", "label_smoothing": 0.1}
            training = LocalTraining(2, ALL, 0.05, privacy=privacy, **recipe, **changes)
            fed = federation(None, training=training, rounds=2)
            return engine.run(create("local"), fed, Schedule(2)).state, fed.client_states.kept["train"]

        (plain, _), (private, moments) = trained(None), trained(Noiseless(0.0, HUGE))
        assert toy.distance(private.models, plain.models) < 1e-6
        assert all(float(state["0.step"]) == 4 for state in moments.values())
        augmentation = ({"crop": {"padding": 2}}, {"flip": {}})
        noisy = trained(Privacy(1.0), augmentation=augmentation)
        assert toy.finite(noisy[0])
        assert toy.same(trained(Privacy(1.0), augmentation=augmentation), noisy)
        assert not toy.same(trained(Privacy(1.0)), noisy)

    def test_epsilon_counts_the_epochs_that_a_budget_allows(self) -> None:
        fed = federation(Privacy(1.0), 8, epochs=2, reliability=Reliability(budgets=Budgets(0.4, 0.5)))
        (record,) = engine.run(create("local"), fed, Schedule(1)).history
        epochs = [1 if n in fed.budgeted_ids else 2 for n in fed.by_id]
        assert sorted(epochs) == [1, 1, 2, 2, 2]
        assert record.epsilon == privacy.spent(Privacy(1.0), toy.SIZES, epochs, 8)

    def test_a_client_that_sat_out_for_diverging_has_trained(self) -> None:
        fed = federation(Privacy(1.0), 8, executor=toy.Diverging(11), on_divergence="skip")
        (record,) = engine.run(create("local"), fed, Schedule(rounds=1)).history
        assert (record.diverged, 11 in record.cohort) == ([11], False)
        assert all(spent > 0 for spent in record.epsilon)


class TestRefusals:
    """What cannot be private, and why."""

    def test_methods_whose_epsilon_would_not_be_the_whole_story(self) -> None:
        """What the registry says of each method is what it does."""
        made = {
            name: create(
                name, {"common": "linear"} if name in ("fml", "fedapen", "fedkd", "fedkd_summed", "fedmrl") else None
            )
            for name in METHODS
        }

        def refused(method: Any) -> bool:
            fed = federation(Privacy(1.0), 8)
            try:
                state = method.init(fed)
                for t in (1, 2):  # FedALA looks at private samples for a client that has a model of its own
                    state, _ = method.round(state, [12, 20], t, fed)
                method.personal(state, toy.IDS, fed)
            except InputError as error:
                assert re.search(r"training\.privacy is set, and this method .* would not cover", str(error))
                return True
            return False

        expected = {name: not method.covered for name, method in made.items()}
        assert {name: refused(method) for name, method in made.items()} == expected

    def test_a_second_training_in_a_round(self) -> None:
        fed = federation(Privacy(1.0), 8)
        models = select(fed.initial_models(), [12, 20])
        fed.train(models, 1)
        fed.train(models, 2)
        with pytest.raises(InputError, match="trains client 20 twice in round 2, which its ε would not cover"):
            fed.train(select(models, [20]), 2)

    def test_batch_norm(self) -> None:
        with pytest.raises(InputError, match=r"^architectures has conv, both with BatchNorm, whose statistics mix"):
            toy.federation(
                architectures=("conv", "mlp", "both"), training=LocalTraining(privacy=Privacy(1.0, delta=0.01))
            )

    def test_layers_that_opacus_does_not_know(self) -> None:
        with pytest.raises(InputError, match=r"^architectures has linear with recurrent or attention layers"):
            federation(Privacy(1.0), build=lambda _: Recurrent())

    @pytest.mark.parametrize(
        ("layer", "message"),
        [
            ("random", r"^architectures has linear on which Opacus fails .*\(RuntimeError: vmap: called random"),
            ("buffered", r"^architectures has linear on which Opacus fails .*\(NotImplementedError: .*buffers"),
            ("around", r"^architectures has linear with 1\.inner\.weight, of which Opacus finds no gradient"),
            ("counting", ""),  # it cannot run without numbers, and Opacus can train it
        ],
    )
    def test_layers_are_tried(self, layer: str, message: str) -> None:
        def build(_: str) -> nn.Module:
            return nn.Sequential(nn.Flatten(), Scaled(layer), nn.Linear(64, toy.CLASSES))

        with pytest.raises(InputError, match=message) if message else nullcontext():
            federation(Privacy(1.0), build=build)

    def test_an_architecture_is_tried_once_and_nothing_is_drawn(self) -> None:
        made = []

        def build(name: str) -> nn.Module:
            made.append(name)
            with torch.device("cpu"):  # as models of torchvision are made
                return toy.build(name)

        before = torch.get_rng_state()
        for _ in range(2):
            federation(Privacy(1.0), build=build)
        assert made == ["linear"] * 5  # three in its trial, one for Opacus, and one for what it mixes
        assert torch.equal(torch.get_rng_state(), before)

    @pytest.mark.parametrize(
        ("compute", "message"),
        [
            (Compute("cpu", dtype="bfloat16"), r"^compute\.dtype is bfloat16, but .* float32 or"),
            (Compute("cpu", memory_format="channels_last"), r"^compute\.memory_format is channels_last, .* contiguous"),
        ],
    )
    def test_faster_arithmetic(self, compute: Compute, message: str) -> None:
        with pytest.raises(InputError, match=message):
            federation(Privacy(1.0), compute=compute)

    def test_vectors_have_no_memory_format(self) -> None:
        def check(shape: tuple[int, ...], kind: kinds.Kind) -> None:
            compute = Compute("cpu", memory_format="channels_last")
            privacy.check_possible(["mlp"], lambda name: nn.Linear(5, 2), shape, kind, compute)

        check((5,), kinds.FEATURES)
        with pytest.raises(InputError, match="channels_last"):
            check((1, 5, 5), kinds.IMAGES)

    def test_a_chance_that_leaves_nothing_private(self) -> None:
        with pytest.raises(InputError, match=r"delta is 0\.05 and a client has 20 training samples"):
            federation(Privacy(1.0, delta=0.05))
        assert federation(Privacy(1.0, delta=0.049)).training.privacy

    def test_without_opacus(self) -> None:
        with (
            patch.object(errors, "find_spec", return_value=None),
            pytest.raises(InputError, match=r"needs opacus, not installed: run .* opacus, or set training.privacy to"),
        ):
            federation(Privacy(1.0))

    def test_it_is_imported_where_it_is_used(self) -> None:
        """Its import takes seconds, which nobody waits for who does not ask for privacy."""
        source = Path(dp_sgd.__file__).read_text(encoding="utf-8")
        assert "    from opacus" in source
        assert not re.search(r"^(from|import) opacus", source, re.MULTILINE)
