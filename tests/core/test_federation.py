"""What every method is given: initial models, public batches, weights, rows, and the verbs over many clients."""

import copy
from collections import Counter
from contextlib import closing
from dataclasses import replace

import pytest
import torch
import toy
from torch import Tensor

from ktpfl_pipeline.core import setting
from ktpfl_pipeline.core.errors import InputError
from ktpfl_pipeline.core.executors.base import fields_of
from ktpfl_pipeline.core.executors.processes import ProcessesExecutor
from ktpfl_pipeline.core.federation import Federation
from ktpfl_pipeline.core.settings import Compute, Distillation, ExecutorSettings
from ktpfl_pipeline.core.weights import Models, params_of

FOUR = (*toy.ARCHITECTURES, "both")


def trained(fed: Federation) -> Models:
    """Models that differ within an architecture too."""
    return fed.train(fed.initial_models(), 1)


class TestInitialModels:
    def test_alike_within_an_architecture_and_different_across(self) -> None:
        models = toy.federation(architectures=("linear", "mlp", "conv", "both")).initial_models()
        assert list(models) == list(toy.IDS)
        assert toy.same(models[3], models[20])  # both linear
        assert toy.same(models[3]["1.weight"].shape, models[20]["1.weight"].shape)
        assert not torch.equal(models[11]["0.weight"], models[12]["0.weight"])  # one convolution, two architectures

    def test_are_the_same_for_every_federation_of_a_seed(self) -> None:
        models = toy.federation().initial_models()
        torch.manual_seed(77)
        assert toy.same(toy.federation().initial_models(), models)
        fewer = toy.federation(2, architectures=("linear", "conv")).initial_models()
        assert toy.same(fewer, {n: models[n] for n in (3, 7)})
        other = toy.federation(seed=1).initial_models()
        assert not any(toy.same(other[n], models[n]) for n in models)

    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    def test_have_the_dtype_of_the_computation(self, dtype: torch.dtype) -> None:
        models = toy.federation(dtype=str(dtype).removeprefix("torch.")).initial_models()
        for params in models.values():
            assert {t.dtype for t in params.values() if t.is_floating_point()} == {dtype}
        assert models[7]["1.num_batches_tracked"].dtype == torch.int64

    def test_hold_parameters_and_buffers(self) -> None:
        models = toy.federation().initial_models()
        assert set(models[7]) == set(toy.build("conv").state_dict())
        assert not any(tensor.requires_grad for tensor in models[7].values())


class TestInitialPrototypes:
    def test_one_for_each_architecture_that_a_client_has(self) -> None:
        fed = toy.federation(4, architectures=("mlp", "conv"))
        prototypes = fed.initial_prototypes()
        assert list(prototypes) == ["conv", "mlp"]
        models = fed.initial_models()
        assert all(toy.same(models[client.id], prototypes[client.architecture]) for client in fed.clients)

    def test_a_model_that_no_client_has_can_start_too(self) -> None:
        fed = toy.federation(architectures=("linear",))
        common = fed.initial_model("both")
        assert set(common) == set(params_of(toy.build("both")))
        assert toy.same(common, toy.federation().initial_model("both"))
        assert not toy.same(common, toy.federation(seed=1).initial_model("both"))

    def test_are_drawn_from_streams_of_their_own(self) -> None:
        fed, before = toy.federation(), toy.global_generators()
        models = [fed.initial_model(name) for name in ("conv", "mlp", "conv")]
        assert toy.same(models[0], models[2])
        assert toy.same(toy.global_generators(), before)


class TestRefusals:
    def test_clients_of_one_id(self) -> None:
        clients = toy.federation(2).clients
        twice = (clients[0], replace(clients[1], id=3))
        with pytest.raises(InputError, match=r"must be distinct; there are \[3, 3\]"):
            toy.again(toy.federation(), clients=twice)

    def test_a_public_batch_that_cannot_be_but_not_the_limits(self) -> None:
        for size in (-1, 0, 25):
            with pytest.raises(InputError, match=rf"The public batch is {size}; .* at most the 24 samples"):
                toy.federation(public_batch_size=size)
        for size in (1, 24):
            assert len(toy.federation(public_batch_size=size).public_batch(1)) == size


class TestPublicBatch:
    def test_without_replacement(self) -> None:
        fed = toy.federation()
        for t in range(1, 6):
            batch = fed.public_batch(t)
            assert batch.shape == (13,)
            assert batch.dtype == torch.int64
            assert batch.unique().numel() == 13
            assert 0 <= batch.min() <= batch.max() < 24

    def test_fresh_each_round(self) -> None:
        fed = toy.federation()
        batches = {tuple(sorted(fed.public_batch(t).tolist())) for t in range(1, 11)}
        assert len(batches) == 10

    def test_the_same_whoever_asks_and_when(self) -> None:
        one, other = toy.federation(), toy.federation(3, architectures=("mlp",), dtype="float64")
        one.train(one.initial_models(), 1)
        torch.manual_seed(5)
        for t in (4, 1, 2):
            assert torch.equal(one.public_batch(t), other.public_batch(t))
        assert not torch.equal(one.public_batch(1), toy.federation(seed=1).public_batch(1))

    def test_every_sample_has_its_turn(self) -> None:
        fed = toy.federation()
        count = Counter(index for t in range(1, 201) for index in fed.public_batch(t).tolist())
        assert set(count) == set(range(24))  # each is drawn 200 x 13/24 = 108 times, standard deviation 7
        assert all(75 < number < 142 for number in count.values())

    def test_bytes(self) -> None:
        """Of images of 64 pixels, and of five features, of which each has four bytes."""
        expected = {"float32": (13 * 256, 13 * 20), "uint8": (13 * 64, 13 * 20), "indices": (13 * 4, 13 * 4)}
        found = {}
        for transport in expected:
            fed = toy.federation(public_transport=transport)
            found[transport] = fed.public_bytes(), toy.again(fed, public=torch.zeros(24, 5)).public_bytes()
        assert found == expected


class TestCohortHelpers:
    def test_data_weights_by_hand(self) -> None:
        weights = toy.federation().data_weights([3, 11, 20])  # 16, 20 and 14 images
        assert weights.tolist() == pytest.approx([0.32, 0.40, 0.28], abs=1e-16)
        assert weights.dtype == torch.float64
        assert toy.federation().data_weights(list(toy.IDS)).sum().item() == pytest.approx(1.0, abs=1e-15)

    def test_rows_are_places_not_ids(self) -> None:
        fed = toy.federation()
        assert fed.rows([7, 20]).tolist() == [1, 4]
        assert fed.places([20, 3]) == fed.rows([20, 3]).tolist() == [4, 0]

    def test_clients_by_id(self) -> None:
        fed = toy.federation()
        assert {n: client.id for n, client in fed.by_id.items()} == {n: n for n in toy.IDS}

    def test_streams_are_those_of_the_seed(self) -> None:
        draws = [torch.rand(3, generator=toy.federation(seed=seed).stream("x", 1)) for seed in (0, 0, 1)]
        assert torch.equal(draws[0], draws[1])
        assert not torch.equal(draws[0], draws[2])


class TestFineTune:
    def test_leaves_its_input_untouched(self) -> None:
        fed = toy.federation(architectures=FOUR)
        models = trained(fed)
        before = copy.deepcopy(models)
        tuned = fed.fine_tune(models, 3)
        assert toy.same(models, before)
        assert list(tuned) == list(models)
        assert not any(toy.same(tuned[n], models[n]) for n in models)

    @pytest.mark.parametrize("epochs", [1, 3])
    def test_is_training_for_so_many_epochs_in_round_0(self, epochs: int) -> None:
        fed = toy.federation(architectures=FOUR)
        models = trained(fed)
        other = toy.again(fed, training=replace(fed.training, epochs=epochs))
        assert toy.same(fed.fine_tune(models, epochs), other.train(models, 0))

    def test_without_a_number_it_takes_that_of_training(self) -> None:
        fed = toy.federation()
        models = trained(fed)
        assert toy.same(fed.fine_tune(models), fed.fine_tune(models, fed.training.epochs))
        assert not toy.same(fed.fine_tune(models), fed.fine_tune(models, 1))

    def test_no_epochs_no_change(self) -> None:
        fed = toy.federation()
        models = trained(fed)
        assert toy.same(fed.fine_tune(models, 0), models)

    def test_repeats_itself_and_moves_no_round(self) -> None:
        """Evaluating often or seldom changes nothing: neither a copy nor the training after it."""
        fed = toy.federation(architectures=FOUR)
        models = trained(fed)
        once = fed.fine_tune(models)
        after = fed.train(models, 2)
        assert toy.same(fed.fine_tune(models), once)
        assert toy.same(toy.again(fed).train(models, 2), after)

    def test_its_losses_are_not_those_of_training(self) -> None:
        fed = toy.federation(2)
        fed.fine_tune(fed.initial_models())
        assert set(fed.current.losses) == {"fine_tune"}


class TestDistillationOfTheServersModels:
    distillation = Distillation(epochs=2, batch_size=100, learning_rate=0.1, temperature=2.0, batch_norm="frozen")

    def teacher(self) -> Tensor:
        return torch.softmax(torch.randn(13, 3, generator=torch.Generator().manual_seed(0)).double(), dim=1)

    def test_fits_each_of_the_servers_models_as_it_would_a_client(self) -> None:
        """All images in one batch, so that the order of the stream does not matter."""
        fed = toy.federation(3, dtype="float64", distillation=self.distillation)
        prototypes, batch = fed.initial_prototypes(), fed.public_batch(1)
        fused = fed.distill(prototypes, self.teacher(), batch, 1)
        distilled = fed.distill(fed.initial_models(), self.teacher().expand(3, -1, -1), batch, 1)
        assert list(fused) == list(prototypes)
        by_client = {client.id: fused[client.architecture] for client in fed.clients}
        assert toy.distance(by_client, distilled) < 1e-13
        assert toy.distance(by_client, fed.initial_models()) > 1e-3

    def test_neither_other_models_nor_their_order_matter(self) -> None:
        fed = toy.federation(distillation=Distillation(epochs=2, batch_size=4, batch_norm="train"))
        prototypes, batch = {name: fed.initial_model(name) for name in FOUR}, fed.public_batch(1)
        before = copy.deepcopy(prototypes)
        together = fed.distill(prototypes, self.teacher(), batch, 1)
        for name in ("both", "linear"):
            assert toy.same(fed.distill({name: prototypes[name]}, self.teacher(), batch, 1)[name], together[name])
            assert not toy.same(fed.distill({name: prototypes[name]}, self.teacher(), batch, 2)[name], together[name])
        assert toy.same(prototypes, before)


class TestHeldOut:
    def test_is_the_split_where_there_is_no_more(self) -> None:
        fed = toy.federation()
        for limit in (None, 15, 16):
            assert fed.held_out(7, "test", limit) is fed.by_id[7].test

    def test_is_so_many_of_its_samples_and_each_once(self) -> None:
        fed = toy.federation()
        found, split = fed.held_out(7, "test", 6), fed.by_id[7].test
        places = [
            next(place for place in range(15) if torch.equal(split.inputs[place], image)) for image in found.inputs
        ]
        assert len(set(places)) == len(found) == 6
        assert torch.equal(split.labels[places], found.labels)

    def test_is_drawn_once_and_for_all(self) -> None:
        """Whatever ran before; but anew for another client, split or seed."""
        fed = toy.federation()
        first = fed.held_out(7, "test", 6)
        trained(fed)
        assert toy.same(fed.held_out(7, "test", 6), first)
        assert toy.same(fed.held_out(7, "test", 5), first.take(torch.arange(5)))
        assert not toy.same(toy.federation(seed=1).held_out(7, "test", 6), first)
        one_split = replace(fed.clients[0], validation=fed.clients[0].test)
        twins = toy.again(fed, clients=(one_split, replace(one_split, id=4)))
        draws = [twins.held_out(3, "test", 6), twins.held_out(3, "validation", 6), twins.held_out(4, "test", 6)]
        assert len({draw.inputs.numpy().tobytes() for draw in draws}) == 3


class TestCrossLogits:
    @pytest.mark.parametrize("limit", [None, 4])
    def test_equal_looping_over_models_and_clients(self, limit: int | None) -> None:
        fed = toy.federation(architectures=FOUR, dtype="float64")
        models = trained(fed)
        some = {n: models[n] for n in (20, 3, 11)}
        found = fed.cross_logits(some, "test", limit)
        assert list(found) == [20, 3, 11]
        for n, logits in found.items():
            images = fed.held_out(n, "test", limit).inputs
            assert logits.shape == (len(images), 3, toy.CLASSES)
            for column, (m, params) in enumerate(some.items()):
                module = toy.build(fed.by_id[m].architecture).double().eval()
                module.load_state_dict(params)
                expected = module(images.double() / 127.5 - 1)
                assert torch.allclose(logits[:, column], expected, rtol=0, atol=1e-12)

    def test_on_ones_own_images_they_are_those_of_evaluation(self) -> None:
        fed = toy.federation(architectures=FOUR)
        models = trained(fed)
        evaluations = fed.evaluate(models, "validation")
        for column, (n, logits) in enumerate(fed.cross_logits(models, "validation").items()):
            right = logits[:, column].argmax(dim=1) == fed.by_id[n].validation.labels
            assert right.double().mean().item() == evaluations[n].accuracy

    def test_splits_of_different_sizes_do_not_mix(self) -> None:
        fed = toy.federation()
        found = fed.cross_logits(trained(fed), "train")
        assert [len(found[n]) for n in toy.IDS] == list(toy.SIZES)

    def test_may_be_empty(self) -> None:
        fed = toy.federation(2)
        nothing = fed.clients[0].validation.take(torch.tensor([], dtype=torch.int64))
        fed = toy.again(fed, clients=(replace(fed.clients[0], validation=nothing), fed.clients[1]))
        assert [len(logits) for logits in fed.cross_logits(fed.initial_models(), "validation").values()] == [0, 6]


def test_device_auto_is_a_real_device() -> None:
    expected = "cuda" if torch.cuda.is_available() else "cpu"
    assert toy.federation(compute=Compute()).device.type == expected


def test_threads_are_those_of_the_settings() -> None:
    torch.set_num_threads(2)
    try:
        fed = toy.federation()
        fed.evaluate(fed.initial_models(), "test")
        assert torch.get_num_threads() == 1
    finally:
        torch.set_num_threads(1)


def test_a_workers_copy_is_not_checked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A copy tries no architecture; the check that a federation makes still finds what is wrong with the data."""
    fed = toy.federation()
    monkeypatch.setattr(setting, "facts_of", lambda *given: pytest.fail("an architecture was tried"))
    copied = setting.Setting(**fields_of(fed, public_batch_size=10**6, known={}))
    with pytest.raises(InputError, match="The public batch is 1000000"):
        copied.check()
    with pytest.raises(InputError, match="The public batch is 1000000"):
        replace(fed, public_batch_size=10**6)


def test_class_counts_are_of_training_samples() -> None:
    fed = toy.federation()
    counts = fed.class_counts([20, 3])
    assert counts.shape == (2, toy.CLASSES)
    assert [row.tolist() for row in counts] == [
        [int((fed.by_id[n].train.labels == k).sum()) for k in range(toy.CLASSES)] for n in (20, 3)
    ]


def test_fields_are_frozen() -> None:
    with pytest.raises(AttributeError):
        toy.federation().seed = 1  # type: ignore[misc]


def test_own_logits_are_those_that_are_evaluated() -> None:
    fed = toy.federation()
    models = fed.initial_models()
    accuracy = fed.evaluate(models, "test")
    for n, logits in zip(models, fed.own_logits(models, "test"), strict=True):
        right = logits.argmax(dim=1) == fed.by_id[n].test.labels
        assert right.double().mean().item() == pytest.approx(accuracy[n].accuracy)


def test_its_executor_is_the_one_that_its_settings_name() -> None:
    compute = Compute("cpu", executor=ExecutorSettings(processes=2))
    with closing(toy.federation(compute=compute).executor) as executor:
        assert isinstance(executor, ProcessesExecutor)
        assert toy.federation(compute=compute, executor=executor).executor is executor
