"""Training by a method's own rule: batches and streams of plain training, gradients of the client's loss anywhere."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
import torch
import torch.nn.functional as F
import toy
from torch import Tensor

from ktpfl_pipeline.core.client.rules import Descent, Gradient, Proximal, Vectors, groups, load, vector
from ktpfl_pipeline.core.settings import LocalTraining
from ktpfl_pipeline.core.weights import vector_of, with_vector

FOUR = (*toy.ARCHITECTURES, "both")


@dataclass(frozen=True)
class Spy:
    """Plain SGD that writes down what it was given, after asking `probes` times for gradients nearby.

    Attributes:
        groups: batches of each step.
        seen: gradients of the probes.
    """

    probes: int = 0
    probing: bool = True
    batches: int = 1
    groups: list[list[Tensor]] = field(default_factory=list)
    seen: list[Tensor] = field(default_factory=list)

    def step(self, vectors: Vectors, gradient: Gradient, group: Sequence[Tensor], rate: float) -> Vectors:
        self.groups.append(list(group))
        w, *others = vectors
        self.seen.extend(gradient(w + 0.1, group[0], probe=self.probing) for _ in range(self.probes))
        return w - rate * gradient(w, group[0]), *others


class TestPlainTraining:
    @pytest.mark.parametrize(
        ("architecture", "dtype"),
        [("linear", "float32"), ("conv", "float64"), ("mlp", "float64"), ("both", "float32")],
    )
    def test_descent_is_fedtrain_bit_for_bit(self, architecture: str, dtype: str) -> None:
        """Same batches, dropout and BatchNorm; short last batches and a last single image among them."""
        fed = toy.alike(architecture, dtype=dtype)
        trained, rest = fed.train_by(Descent(), fed.initial_models(), 2)
        assert toy.same(trained, fed.train(fed.initial_models(), 2))
        assert rest == dict.fromkeys(toy.IDS, ())

    def test_a_rate_of_its_own(self) -> None:
        fed = toy.alike("both")
        faster = toy.again(fed, training=LocalTraining(epochs=2, batch_size=8, learning_rate=0.2))
        assert toy.same(fed.train_by(Descent(0.2), fed.initial_models(), 1)[0], faster.train(fed.initial_models(), 1))

    def test_the_loss_is_the_mean_over_the_last_epochs_batches(self) -> None:
        fed = toy.alike()
        fed.train({3: fed.initial_models()[3]}, 1)  # two batches of 8: the mean over images is that over batches
        plain = fed.current.losses.pop("train")[3]
        fed.train_by(Descent(), {3: fed.initial_models()[3]}, 1)
        assert fed.current.losses["train"][3] == pytest.approx(plain, abs=1e-7)

    def test_the_loss_leaves_probes_out(self) -> None:
        fed = toy.alike()
        losses = []
        for rule in (Descent(), Spy(probes=3)):
            fed.train_by(rule, fed.initial_models(), 1)
            losses.append(fed.current.losses["train"])
        assert losses[0] == losses[1]

    def test_no_epoch_no_change(self) -> None:
        fed = toy.alike("both")
        trained, _ = fed.train_by(Descent(), fed.initial_models(), 1, epochs=dict.fromkeys(fed.by_id, 0))
        assert toy.same(trained, fed.initial_models())
        assert fed.current.losses["train"] == dict.fromkeys(toy.IDS, 0.0)

    def test_a_part_has_streams_of_its_own(self) -> None:
        fed = toy.alike()
        first, second, again = (fed.train_by(Descent(), fed.initial_models(), 1, part=p)[0] for p in ("", "b", "b"))
        assert not toy.same(first, second)
        assert toy.same(second, again)

    def test_adapting_takes_so_many_steps(self) -> None:
        fed = toy.alike()
        for steps in (0, 1, 2, 9):
            spy = Spy()
            fed.train_by(spy, {11: fed.initial_models()[11]}, 0, steps=steps)  # 20 images: batches of 8, 8, 4
            assert [len(group[0]) for group in spy.groups] == [8, 8, 4, 8, 8, 4, 8, 8, 4][:steps]

    def test_adapting_is_the_same_every_time_and_no_rounds_training(self) -> None:
        fed = toy.alike("mlp", training=LocalTraining(epochs=1, batch_size=8, learning_rate=0.1))
        first, second = (fed.train_by(Descent(), fed.initial_models(), 0, steps=9)[0] for _ in range(2))
        assert toy.same(first, second)
        assert all(not toy.same(first, fed.train(fed.initial_models(), t)) for t in (1, 2))

    def test_the_other_vectors_come_back(self) -> None:
        """In the dtype of the models, one collection for each client."""
        fed = toy.alike()
        given = {n: (torch.full((2,), float(n), dtype=torch.float64),) for n in toy.IDS}
        _, rest = fed.train_by(Spy(), fed.initial_models(), 1, given)
        assert toy.same(rest, {n: (vectors[0].float(),) for n, vectors in given.items()})


class TestGradient:
    def test_is_that_of_the_mean_cross_entropy_where_it_is_asked(self) -> None:
        fed, spy = toy.alike("conv", dtype="float64"), Spy(probes=1)
        start = fed.initial_models()[11]
        fed.train_by(spy, {11: start}, 1, epochs={11: 1})
        names, samples = fed.trained_names, fed.by_id[11].train
        module = toy.build("conv").double().train()
        module.load_state_dict(with_vector(start, names, vector_of(start, names) + 0.1))
        (batch,) = spy.groups[0]
        pixels = samples.inputs[batch].double() / 127.5 - 1.0
        F.cross_entropy(module(pixels), samples.labels[batch]).backward()
        expected = torch.cat([parameter.grad.flatten() for parameter in module.parameters()])
        assert torch.allclose(spy.seen[0], expected, rtol=0, atol=1e-14)

    def test_probes_leave_statistics_and_dropout_as_they_were(self) -> None:
        fed = toy.alike("both")
        with_probes, without = (fed.train_by(Spy(probes=k), fed.initial_models(), 1)[0] for k in (2, 0))
        assert toy.same(with_probes, without)

    def test_other_gradients_do_not(self) -> None:
        """So that the test before can fail."""
        fed, spy = toy.alike("both"), Spy(probes=2, probing=False)
        trained, _ = fed.train_by(spy, fed.initial_models(), 1)
        assert not toy.same(trained, fed.train_by(Spy(), fed.initial_models(), 1)[0])
        assert not torch.equal(*spy.seen[:2])  # other images were dropped out

    def test_two_probes_in_a_row_are_of_one_function(self) -> None:
        fed, spy = toy.alike("both"), Spy(probes=2)
        fed.train_by(spy, fed.initial_models(), 1)
        assert all(torch.equal(one, other) for one, other in zip(spy.seen[::2], spy.seen[1::2], strict=True))

    def test_global_generators_stay_where_they_are(self) -> None:
        fed, before = toy.alike("both"), toy.global_generators()
        fed.train_by(Spy(probes=2), fed.initial_models(), 1)
        assert toy.same(toy.global_generators(), before)


class TestGroups:
    def test_every_batch_is_used_once_and_short_groups_repeat_their_own(self) -> None:
        expected = {
            (4, 1): [[0], [1], [2], [3]],
            (4, 2): [[0, 1], [2, 3]],
            (5, 2): [[0, 1], [2, 3], [4, 4]],
            (5, 3): [[0, 1, 2], [3, 4, 3]],
            (1, 3): [[0, 0, 0]],
        }
        made = {key: groups([torch.tensor(i) for i in range(key[0])], key[1]) for key in expected}
        assert {key: [[int(batch) for batch in group] for group in found] for key, found in made.items()} == expected


class TestVector:
    def test_there_and_back(self) -> None:
        module, other = toy.build("both"), toy.build("both")
        load(list(other.parameters()), vector(list(module.parameters())))
        assert all(torch.equal(one, two) for one, two in zip(module.parameters(), other.parameters(), strict=True))

    def test_has_the_order_of_trained_names(self) -> None:
        for architecture in FOUR:
            fed, module = toy.alike(architecture), toy.build(architecture)
            params = dict(module.state_dict())
            found = vector_of(params, fed.trained_names)
            assert torch.equal(vector(list(module.parameters())), found), architecture


class TestProximal:
    def test_by_hand(self) -> None:
        """w = 1, anchor = 3, g = 2w = 2, strength 1/2, rate 1/4: 1 - (2 + (1 - 3) / 2) / 4 = 3/4."""
        w, anchor = torch.tensor([1.0]), torch.tensor([3.0])
        moved, kept = Proximal(0.5).step((w, anchor), lambda w, batch, probe=False: 2 * w, [torch.tensor([0])], 0.25)
        assert moved.tolist() == [0.75]
        assert kept.tolist() == [3.0]

    @pytest.mark.parametrize("architecture", FOUR)
    def test_without_strength_it_is_plain_training(self, architecture: str) -> None:
        fed = toy.alike(architecture)
        far = dict.fromkeys(toy.IDS, (vector_of(fed.initial_model(architecture), fed.trained_names) + 100.0,))
        trained, _ = fed.train_by(Proximal(0.0), fed.initial_models(), 1, far)
        assert toy.same(trained, fed.train(fed.initial_models(), 1))

    def test_it_pulls(self) -> None:
        """The stronger, the nearer to the anchor: the term has a gradient."""
        fed = toy.alike()
        anchor = vector_of(fed.initial_model("linear"), fed.trained_names) + 1.0
        ends = []
        for strength in (0.0, 0.1, 1.0, 5.0):
            trained, _ = fed.train_by(Proximal(strength), {3: fed.initial_models()[3]}, 1, {3: (anchor,)})
            ends.append(float((vector_of(trained[3], fed.trained_names) - anchor).norm()))
        assert ends == sorted(ends, reverse=True)
        assert ends[-1] < 0.5 * ends[0]
