"""The operations for one client, through a federation of few: steps worked by hand, batches, streams, preprocessing."""

import copy
from collections import Counter
from dataclasses import replace
from typing import Any, ClassVar

import pytest
import torch
import toy
from torch import Tensor, nn

from ktpfl_pipeline.core.client import operations
from ktpfl_pipeline.core.client.workspace import Workspace
from ktpfl_pipeline.core.dataset import LabeledDataset
from ktpfl_pipeline.core.federation import Federation
from ktpfl_pipeline.core.setting import DTYPES
from ktpfl_pipeline.core.settings import Compute, Distillation, LocalTraining

FOUR = (*toy.ARCHITECTURES, "both")


def zero_linear(inputs: int, classes: int) -> nn.Module:
    module = nn.Sequential(nn.Flatten(), nn.Linear(inputs, classes))
    nn.init.zeros_(module[1].weight)
    nn.init.zeros_(module[1].bias)
    return module


class TestSteps:
    white_and_black = torch.tensor([[[[255]]], [[[0]]]], dtype=torch.uint8)  # pixels 1 and -1

    def test_training_by_hand(self) -> None:
        """Two images of one pixel, x = 1 of class 0 and x = -1 of class 1, all weights 0, one step of 0.5.

        Every probability is 1/2, so the gradient of the mean cross-entropy is dW_0 = (-1/2 (1) + 1/2 (-1)) / 2 = -1/2,
        dW_1 = +1/2, and for the biases 0. After the step W = (1/4, -1/4). The loss before it was ln 2.
        """
        train = LabeledDataset(self.white_and_black, torch.tensor([0, 1]))
        training = LocalTraining(epochs=1, batch_size=2, learning_rate=0.5)
        fed = toy.one_client(zero_linear(1, 2), train, self.white_and_black, training=training)
        after = fed.train(fed.initial_models(), 1)[5]
        assert after["1.weight"].flatten().tolist() == pytest.approx([0.25, -0.25], abs=1e-15)
        assert after["1.bias"].tolist() == pytest.approx([0.0, 0.0], abs=1e-15)
        assert fed.current.losses == {"train": {5: pytest.approx(0.6931471805599453, abs=1e-15)}}

    def test_distilling_by_hand(self) -> None:
        """The teacher of x = 1 is (3/4, 1/4) and of x = -1 (1/2, 1/2); T = 2, all weights 0, one step of 0.5.

        The gradient at the logits is T (1/2 - p) / 2: (-1/4, 1/4) for x = 1 and 0 for x = -1. So W moves by (1/8, -1/8)
        and the biases too.
        """
        train = LabeledDataset(self.white_and_black, torch.tensor([0, 1]))
        distillation = Distillation(epochs=1, batch_size=2, learning_rate=0.5, temperature=2.0)
        fed = toy.one_client(zero_linear(1, 2), train, self.white_and_black, distillation=distillation)
        teacher = torch.tensor([[[0.75, 0.25], [0.5, 0.5]]], dtype=torch.float64)
        after = fed.distill(fed.initial_models(), teacher, torch.tensor([0, 1]), 1)[5]
        assert after["1.weight"].flatten().tolist() == pytest.approx([0.125, -0.125], abs=1e-15)
        assert after["1.bias"].tolist() == pytest.approx([0.125, -0.125], abs=1e-15)

    def test_the_teacher_follows_its_image(self) -> None:
        """However the batch and its shuffling order the images: only public image 1 has a teacher to follow."""
        public = torch.tensor([[[[0, 0, 0]]], [[[255, 0, 0]]], [[[0, 255, 0]]], [[[0, 0, 255]]]], dtype=torch.uint8)
        distillation = Distillation(epochs=1, batch_size=1, learning_rate=1e-6)
        fed = toy.one_client(
            zero_linear(3, 2), LabeledDataset(public, torch.zeros(4).long()), public, distillation=distillation
        )
        for batch in ([1, 2, 3], [3, 2, 1], [2, 1, 0, 3]):
            teacher = torch.full((1, len(batch), 2), 0.5, dtype=torch.float64)
            teacher[0, batch.index(1)] = torch.tensor([1.0, 0.0])
            weight = fed.distill(fed.initial_models(), teacher, torch.tensor(batch), 1)[5]["1.weight"][0]
            assert weight[0] > 0 > weight[1]
            assert weight[1] == pytest.approx(weight[2].item(), rel=1e-4)

    def test_training_in_closed_form(self) -> None:
        """Softmax regression on the toy images, two batches in the order of the named stream, without autograd."""
        training = LocalTraining(epochs=2, batch_size=11, learning_rate=0.1)
        fed = toy.federation(3, architectures=("linear",), dtype="float64", training=training)
        client, start = fed.clients[2], fed.initial_models()
        x = client.train.inputs.flatten(1).double() / 127.5 - 1
        onehot = torch.eye(3, dtype=torch.float64)[client.train.labels]
        w, b = start[11]["1.weight"], start[11]["1.bias"]
        shuffle = fed.stream("private shuffle", 4, 11)
        for _ in range(2):
            for batch in torch.randperm(20, generator=shuffle).split(11):
                error = (torch.softmax(x[batch] @ w.T + b, dim=1) - onehot[batch]) / len(batch)
                w, b = w - 0.1 * error.T @ x[batch], b - 0.1 * error.sum(dim=0)
        after = fed.train(start, 4)[11]
        assert torch.allclose(after["1.weight"], w, rtol=0, atol=1e-14)
        assert torch.allclose(after["1.bias"], b, rtol=0, atol=1e-14)

    def test_no_epochs_no_change(self) -> None:
        fed = toy.federation(training=LocalTraining(epochs=0), distillation=Distillation(epochs=0))
        models, batch = fed.initial_models(), fed.public_batch(1)
        teachers = torch.full((5, len(batch), 3), 1 / 3)
        assert toy.same(fed.train(models, 1), models)
        assert toy.same(fed.distill(models, teachers, batch, 1), models)

    @pytest.mark.parametrize("epochs", [0, 1, 3])
    def test_another_number_of_epochs(self, epochs: int) -> None:
        """As if the settings said so; without a number they do."""
        fed = toy.federation(architectures=FOUR)
        space, models = Workspace(fed), fed.initial_models()
        said = toy.again(fed, training=replace(fed.training, epochs=epochs))
        expected = said.train(models, 2)
        losses = said.current.losses["train"]
        for n, params in models.items():
            found = operations.train(space, n, params, 2, epochs)
            assert toy.same((found.value, found.loss), (expected[n], torch.tensor(losses[n], dtype=torch.float64)))
            assert toy.same(
                operations.train(space, n, params, 2), operations.train(space, n, params, 2, fed.training.epochs)
            )

    def test_the_loss_is_the_mean_over_images_of_the_last_epoch(self) -> None:
        training = LocalTraining(epochs=3, batch_size=8, learning_rate=0.0)
        fed = toy.federation(architectures=("linear",), training=training)
        models = fed.initial_models()
        fed.train(models, 1)
        expected = {n: evaluation.loss for n, evaluation in fed.evaluate(models, "train").items()}
        assert fed.current.losses["train"] == pytest.approx(expected, abs=1e-6)


class Watcher(nn.Module):
    """A linear model that keeps what it is shown."""

    seen: ClassVar[list[Tensor]] = []

    def __init__(self, inputs: int) -> None:
        super().__init__()
        self.linear = nn.Linear(inputs, 3)

    def forward(self, images: Tensor) -> Tensor:
        Watcher.seen.append(images.detach().clone())
        return self.linear(images.flatten(1))


@pytest.fixture
def watched() -> Federation:
    fed = toy.again(toy.federation(), build=lambda name: Watcher(64))  # it is tried on drawn inputs
    Watcher.seen = []
    return fed


class TestImages:
    def test_every_training_image_is_used_once_an_epoch(self, watched: Federation) -> None:
        watched.train(watched.initial_models(), 1)
        seen = Counter(image.numpy().tobytes() for image in torch.cat(Watcher.seen))
        images = [client.train.inputs for client in watched.clients]
        expected = Counter((image / 127.5 - 1).numpy().tobytes() for image in torch.cat(images).float())
        assert len(seen) == sum(toy.SIZES)
        assert seen == Counter({image: 2 * number for image, number in expected.items()})  # E = 2

    def test_every_public_image_is_used_once_an_epoch(self, watched: Federation) -> None:
        fed = toy.again(watched, distillation=Distillation(epochs=3, batch_size=4))
        batch = fed.public_batch(1)
        fed.distill({3: fed.initial_models()[3]}, torch.full((1, 13, 3), 1 / 3), batch, 1)
        seen = Counter(image.numpy().tobytes() for image in torch.cat(Watcher.seen))
        expected = Counter((image / 127.5 - 1).numpy().tobytes() for image in fed.public[batch].float())
        assert seen == Counter({image: 3 * number for image, number in expected.items()})

    def test_private_and_public_images_are_prepared_alike(self) -> None:
        """One and the same set of images, all 256 levels in it, through the four verbs that look at images."""
        images = torch.arange(256, dtype=torch.uint8).reshape(4, 1, 8, 8)
        split = LabeledDataset(images, torch.tensor([0, 1, 2, 0]))
        client = replace(toy.federation().clients[0], train=split, validation=split, test=split)
        settings = {"training": LocalTraining(epochs=1), "distillation": Distillation()}
        fed = toy.again(
            toy.federation(),
            clients=(client,),
            public=images,
            public_batch_size=4,
            build=lambda name: Watcher(64),
            **settings,
        )
        models, batch = fed.initial_models(), torch.arange(4)
        shown = []
        for verb in (
            lambda: fed.train(models, 1),
            lambda: fed.evaluate(models, "test"),
            lambda: fed.logits(models, batch),
            lambda: fed.distill(models, torch.full((1, 4, 3), 1 / 3), batch, 1),
        ):
            Watcher.seen = []
            verb()
            shown.append(torch.cat(Watcher.seen))
        for pixels in shown:
            assert pixels.dtype == torch.float32
            assert (pixels.min(), pixels.max()) == (-1.0, 1.0)
            in_order = pixels[pixels[:, 0, 0, 0].argsort()]
            assert torch.equal(in_order.flatten(), torch.arange(256).float() / 127.5 - 1)
        assert torch.equal(shown[1], shown[2])

    def test_images_stay_as_they_are(self) -> None:
        fed = toy.federation()
        images = [fed.public, *(getattr(c, s).inputs for c in fed.clients for s in ("train", "validation", "test"))]
        before = copy.deepcopy(images)
        models, batch = fed.initial_models(), fed.public_batch(1)
        fed.evaluate(fed.train(models, 1), "test")
        fed.distill(models, torch.softmax(fed.logits(models, batch), dim=2), batch, 1)
        assert toy.same(images, before)


class TestPredictions:
    def test_the_prediction_batch_does_not_matter(self) -> None:
        fed = toy.federation(architectures=FOUR)
        models, batch = fed.train(fed.initial_models(), 1), fed.public_batch(1)
        logits, evaluations = fed.logits(models, batch), fed.evaluate(models, "test")
        for size in (1, 4, 7, 1000):
            small = toy.again(fed, compute=Compute(device="cpu", prediction_batch=size))
            assert torch.allclose(logits, small.logits(models, batch), rtol=0, atol=1e-5), size
            for n, other in small.evaluate(models, "test").items():
                assert other.accuracy == evaluations[n].accuracy, size
                assert other.loss == pytest.approx(evaluations[n].loss, abs=1e-6), size

    def test_logits_are_those_of_the_module_in_eval_mode(self) -> None:
        fed = toy.federation(architectures=FOUR, dtype="float64")
        fed = toy.again(fed, distillation=replace(fed.distillation, batch_norm="frozen"))
        models, batch = fed.train(fed.initial_models(), 1), fed.public_batch(1)
        logits = fed.logits(models, batch)
        assert logits.shape == (5, 13, 3)
        for client, found in zip(fed.clients, logits, strict=True):
            module = toy.build(client.architecture).double().eval()
            module.load_state_dict(models[client.id])
            expected = module(fed.public[batch].double() / 127.5 - 1)
            assert torch.allclose(found, expected, rtol=0, atol=1e-12)

    def test_order_of_models_is_order_of_rows(self) -> None:
        fed = toy.federation()
        models, batch = fed.initial_models(), fed.public_batch(1)
        some = fed.logits({20: models[20], 3: models[3]}, batch)
        assert torch.equal(some, fed.logits(models, batch)[[4, 0]])

    def test_evaluation_by_hand(self) -> None:
        """x = 1, -1, 1 of classes 0, 1, 1 and logits (x, 0): two of three right, loss the mean of three numbers."""
        images = torch.tensor([255, 0, 255], dtype=torch.uint8).reshape(3, 1, 1, 1)
        module = zero_linear(1, 2)
        module[1].weight.data[0] = 1.0
        fed = toy.one_client(module, LabeledDataset(images, torch.tensor([0, 1, 1])), images)
        evaluation = fed.evaluate(fed.initial_models(), "test")[5]
        assert evaluation.accuracy == pytest.approx(2 / 3)
        # ln(1 + 1/e) twice and ln(1 + e)
        assert evaluation.loss == pytest.approx((2 * 0.3132616875182228 + 1.3132616875182228) / 3, abs=1e-14)

    def test_each_client_is_evaluated_on_its_own_split(self) -> None:
        fed = toy.federation(architectures=("linear",))
        models = fed.initial_models()
        for split in ("train", "validation", "test"):
            for client in fed.clients:
                samples = getattr(client, split)
                logits = (samples.inputs.flatten(1).float() / 127.5 - 1) @ models[client.id]["1.weight"].T
                hits = ((logits + models[client.id]["1.bias"]).argmax(dim=1) == samples.labels).double().mean()
                assert fed.evaluate(models, split)[client.id].accuracy == pytest.approx(hits.item())

    def test_predicting_first_does_not_keep_a_client_from_training(self) -> None:
        """A module built for a prediction trains later: with cohorts, clients are evaluated before they first train."""
        for predict in (lambda fed, m: fed.evaluate(m, "test"), lambda fed, m: fed.logits(m, fed.public_batch(1))):
            fed = toy.federation(architectures=FOUR)
            models = fed.initial_models()
            predict(fed, models)
            assert toy.same(fed.train(models, 1), toy.federation(architectures=FOUR).train(models, 1))

    def test_predict_is_the_module_in_eval_mode_in_parts(self) -> None:
        fed = toy.federation(dtype="float64", compute=Compute(device="cpu", dtype="float64", prediction_batch=4))
        seen: list[int] = []
        module, images = toy.build("both").double().train(), fed.public[:9]
        handle = module.register_forward_pre_hook(lambda module, inputs: seen.append(len(inputs[0])))
        found = operations.predict(Workspace(fed), module, images)
        handle.remove()
        assert seen == [4, 4, 1]
        assert not module.training
        assert torch.allclose(found, module(images.double() / 127.5 - 1), rtol=0, atol=1e-13)

    def test_predictions_may_enter_a_gradient(self) -> None:
        fed = toy.federation()
        logits = fed.logits(fed.initial_models(), fed.public_batch(1))
        weight = torch.ones((), requires_grad=True)
        (weight * logits).square().mean().backward()
        assert weight.grad is not None


class TestStreams:
    def test_verbs_leave_the_global_generators_alone(self) -> None:
        fed = toy.federation(architectures=FOUR)
        before = toy.global_generators()
        models, batch = fed.train(fed.initial_models(), 1), fed.public_batch(1)
        fed.distill(models, torch.softmax(fed.logits(models, batch), dim=2), batch, 1)
        fed.evaluate(models, "test")
        fed.data_weights([3, 7])
        assert toy.same(toy.global_generators(), before)

    @pytest.mark.parametrize("batch_norm", ["frozen", "train"])
    def test_verbs_do_not_depend_on_the_global_generators(self, batch_norm: Any) -> None:
        results = []
        for seed in (0, 12345):
            torch.manual_seed(seed)
            fed = toy.federation(architectures=FOUR, distillation=Distillation(batch_size=4, batch_norm=batch_norm))
            models, batch = fed.train(fed.initial_models(), 1), fed.public_batch(1)
            results.append(fed.distill(models, torch.softmax(fed.logits(models, batch), dim=2), batch, 1))
        assert toy.same(*results)

    @pytest.mark.parametrize(("architecture", "moves"), [("linear", False), ("mlp", True)])
    def test_dropout_differs_by_round_and_client(self, architecture: str, moves: bool) -> None:
        """Every client has the same image many times, in one batch: shuffling then changes nothing."""
        training = LocalTraining(epochs=1, batch_size=100, learning_rate=0.1)
        fed = toy.federation(2, architectures=(architecture,), dtype="float64", training=training)
        image = fed.clients[0].train.take(torch.zeros(10, dtype=torch.int64))
        fed = toy.again(fed, clients=tuple(replace(client, train=image) for client in fed.clients))
        models = fed.initial_models()
        one, other = fed.train(models, 1), fed.train(models, 2)
        by_round, by_client = toy.distance({3: one[3]}, {3: other[3]}), toy.distance({3: one[3]}, {3: one[7]})
        for distance in (by_round, by_client):
            assert distance > 1e-4 if moves else distance < 1e-12

    def test_dropout_is_at_work_only_where_it_should_be(self) -> None:
        """Training uses it, predictions and frozen distillation do not, distillation in training mode does."""
        dropout = nn.Sequential(nn.Flatten(), nn.Dropout(0.5), nn.Linear(64, 3))
        distances = {}
        for mode in ("frozen", "train"):
            results = []
            for seed in (0, 1):  # other streams; full batches, so that only dropout can tell them apart
                fed = toy.one_client(
                    dropout,
                    toy.samples(12, 0),
                    toy.samples(6, 1).inputs,
                    classes=3,
                    seed=seed,
                    training=LocalTraining(epochs=1, batch_size=100, learning_rate=0.1),
                    distillation=Distillation(batch_size=100, learning_rate=0.1, batch_norm=mode),
                )
                teacher = torch.softmax(torch.arange(18.0).reshape(1, 6, 3).double(), dim=2)
                models = fed.initial_models()
                results.append([fed.train(models, 1), fed.distill(models, teacher, torch.arange(6), 1)])
            distances["train"], distances[mode] = map(toy.distance, *results)
        assert distances["frozen"] < 1e-12
        assert distances["train"] > 1e-3

    def test_shuffling_differs_by_round_client_and_phase(self) -> None:
        fed = toy.federation()
        names = [
            ("private shuffle", 1, 3),
            ("private shuffle", 2, 3),
            ("private shuffle", 1, 7),
            ("public shuffle", 1, 3),
        ]
        orders = [tuple(torch.randperm(30, generator=fed.stream(*name)).tolist()) for name in names]
        assert len(set(orders)) == 4
        assert orders[0] == tuple(torch.randperm(30, generator=fed.stream(*names[0])).tolist())

    def test_other_clients_change_no_draw(self) -> None:
        fed = toy.federation(architectures=("both",))
        models = fed.initial_models()
        together = fed.train(models, 3)
        for n in (20, 3, 12):
            assert toy.same(toy.again(fed).train({n: models[n]}, 3)[n], together[n])


class TestBatchNorm:
    BUFFERS = ("1.running_mean", "1.running_var", "1.num_batches_tracked")

    def run(self, mode: Any) -> tuple[dict[str, Tensor], dict[str, Tensor], dict[str, Tensor]]:
        fed = toy.federation(1, architectures=("conv",), distillation=Distillation(batch_size=4, batch_norm=mode))
        start, batch = fed.initial_models(), fed.public_batch(1)
        trained = fed.train(start, 1)
        teacher = torch.softmax(torch.randn(1, 13, 3, generator=torch.Generator().manual_seed(0)), dim=2)
        return start[3], trained[3], fed.distill(trained, teacher, batch, 1)[3]

    def test_training_updates_the_statistics(self) -> None:
        start, trained, _ = self.run("frozen")
        assert not any(torch.equal(start[name], trained[name]) for name in self.BUFFERS)
        assert trained["1.num_batches_tracked"] == 4  # 2 epochs of 16 images in batches of 8

    def test_frozen_distillation_leaves_them_and_trains_the_rest(self) -> None:
        _, trained, distilled = self.run("frozen")
        assert all(torch.equal(trained[name], distilled[name]) for name in self.BUFFERS)
        moved = [name for name in trained if not torch.equal(trained[name], distilled[name])]
        assert moved == ["0.weight", "0.bias", "1.weight", "1.bias", "4.weight", "4.bias"]

    def test_distillation_in_training_mode_updates_them(self) -> None:
        _, trained, distilled = self.run("train")
        assert not any(torch.equal(trained[name], distilled[name]) for name in self.BUFFERS)

    def test_predictions_leave_them(self) -> None:
        fed = toy.federation(architectures=("conv",))
        models = fed.initial_models()
        fed.evaluate(models, "test")
        fed.logits(models, fed.public_batch(1))
        module = fed.executor._space.module(3, models[3])
        fed.logits(models, fed.public_batch(1))
        assert all(torch.equal(module.state_dict()[name], models[3][name]) for name in self.BUFFERS)


def depthwise(name: str) -> nn.Module:
    """A product, a depthwise convolution, BatchNorm, a product: 1 x 8 x 8 pixels to the classes."""
    return nn.Sequential(
        *(nn.Conv2d(1, 4, 3), nn.Conv2d(4, 4, 3, groups=4), nn.BatchNorm2d(4), nn.Flatten()),
        nn.Linear(64, toy.CLASSES),
    )


class TestPurity:
    def test_models_given_stay_as_they_are_and_results_stand_alone(self) -> None:
        fed = toy.federation(architectures=FOUR)
        models, batch = fed.initial_models(), fed.public_batch(1)
        before = copy.deepcopy(models)
        trained = fed.train(models, 1)
        kept = copy.deepcopy(trained)
        teachers = torch.softmax(fed.logits(trained, batch), dim=2).flip(0).contiguous()
        told = teachers.clone()
        distilled = fed.distill(trained, teachers, batch, 1)
        fed.evaluate(distilled, "test")
        fed.train(distilled, 2)  # the module that made `trained` works on
        assert toy.same(models, before)
        assert toy.same(trained, kept)
        assert torch.equal(teachers, told)

    @pytest.mark.parametrize("dtype", ["float32", "float64"])
    def test_dtypes(self, dtype: str) -> None:
        fed = toy.federation(architectures=FOUR, dtype=dtype)
        expected = DTYPES[dtype]
        models, batch = fed.train(fed.initial_models(), 1), fed.public_batch(1)
        logits = fed.logits(models, batch)
        distilled = fed.distill(models, torch.softmax(logits.double(), dim=2), batch, 1)
        assert logits.dtype == expected
        for params in (*models.values(), *distilled.values()):
            assert {t.dtype for t in params.values() if t.is_floating_point()} == {expected}
            assert not any(t.requires_grad for t in params.values())

    def test_float32_is_near_float64(self) -> None:
        initial = toy.federation(architectures=("linear",)).initial_models()
        results = []
        for dtype in ("float32", "float64"):
            fed = toy.federation(architectures=("linear",), dtype=dtype)
            models = {n: {k: v.to(DTYPES[dtype]) for k, v in params.items()} for n, params in initial.items()}
            results.append(fed.train(models, 1))
        assert 0 < toy.distance(*results) < 1e-5

    def test_channels_last_is_the_same_arithmetic_in_another_order(self) -> None:
        """To the rounding of float64, weights and predictions; and weights come out as they went in."""
        fed = toy.federation(dtype="float64")
        other = toy.again(fed, compute=replace(fed.compute, memory_format="contiguous"))
        one, two = (each.train(each.initial_models(), 1) for each in (fed, other))
        assert toy.distance(one, two) < 1e-12
        assert all(value.is_contiguous() for params in one.values() for value in params.values())
        batch = fed.public_batch(1)
        assert torch.allclose(fed.logits(one, batch), other.logits(two, batch), rtol=0, atol=1e-11)

    def test_bfloat16_is_a_precision_of_products_alone(self) -> None:
        """Weights and predictions are float32, and near those of float32: 8 bits against 24."""
        fed = toy.federation()
        other = toy.again(fed, compute=replace(fed.compute, dtype="bfloat16"))
        start = fed.initial_models()
        one, two = fed.train(start, 1), other.train(start, 1)
        assert {value.dtype for params in two.values() for value in params.values()} <= {torch.float32, torch.int64}
        assert 1e-5 < toy.distance(one, two) < 0.1 * toy.distance(one, start)
        logits = other.logits(two, fed.public_batch(1))
        assert logits.dtype == torch.float32
        assert 1e-5 < (logits - fed.logits(two, fed.public_batch(1))).abs().max() < 0.1

    def test_depthwise_convolutions_are_trained_in_float32(self) -> None:
        """Beside others in bfloat16; predictions are all in bfloat16."""
        fed = toy.federation(build=depthwise, architectures=("depthwise",), dtype="bfloat16")
        space = Workspace(fed)
        module = space.module(toy.IDS[0], fed.initial_models()[toy.IDS[0]])
        seen: list[torch.dtype] = []
        for part in module:
            part.register_forward_hook(lambda part, images, found: seen.append(found.dtype))
        images = torch.zeros(2, 1, 8, 8)
        module(images)
        with torch.inference_mode():
            assert module(images).dtype == torch.float32
        training, predicting = seen[:5], seen[5:]
        assert training == [torch.bfloat16, *[torch.float32] * 3, torch.bfloat16]
        assert predicting == [torch.bfloat16] * 5

    def test_optimizer_is_fresh_in_each_phase(self) -> None:
        """Two calls in a row are two phases: each depends on its arguments alone."""
        fed = toy.federation(architectures=FOUR)
        models = fed.initial_models()
        once = fed.train(models, 1)
        fed.train(once, 2)
        assert toy.same(fed.train(models, 1), once)
