"""Augmentation: whose draws are whose, what is left alone, and what is refused."""

from dataclasses import replace
from typing import Any

import pytest
import torch
import toy
from torch import Tensor

from ktpfl_pipeline.core import augmentation
from ktpfl_pipeline.core.client.private import PrivateSamples
from ktpfl_pipeline.core.client.workspace import Workspace
from ktpfl_pipeline.core.dataset import LabeledDataset
from ktpfl_pipeline.core.errors import InputError
from ktpfl_pipeline.core.federation import Federation
from ktpfl_pipeline.core.settings import LocalTraining

N = 3
EACH: list[dict[str, dict[str, Any]]] = [
    {"crop": {"padding": 2}},
    {"flip": {"p": 0.5}},
    {"color_jitter": {"brightness": 0.5, "contrast": 0.5, "saturation": 0.5, "hue": 0.2}},
    {"rand_augment": {"num_ops": 2, "magnitude": 15}},
]
BATCH = torch.arange(16)


def federation(*changes: dict[str, dict[str, Any]], **settings: Any) -> Federation:
    return toy.alike("mlp", training=LocalTraining(2, 8, 0.1, augmentation=changes), **settings)


def shown(fed: Federation, n: int = N, t: int = 1, batches: int = 1) -> list[Tensor]:
    """Return the images that a training of client n sees, some batches of the same indices."""
    own = PrivateSamples(Workspace(fed), n, t)
    return [own.inputs(BATCH.clone()) for _ in range(batches)]


class TestDraws:
    @pytest.mark.parametrize("change", EACH, ids=lambda change: next(iter(change)))
    def test_are_of_their_name(self, change: dict[str, dict[str, Any]]) -> None:
        fed = federation(change)
        first, second = shown(fed, batches=2)
        torch.manual_seed(1)
        assert torch.equal(shown(fed)[0], first)
        plain = shown(federation())[0]
        assert first.shape == plain.shape and first.dtype == plain.dtype
        for other in (plain, second, shown(fed, t=2)[0], shown(federation(change, seed=1))[0]):
            assert not torch.equal(other, first)

    def test_are_each_clients_own(self) -> None:
        """Two clients with the same images."""
        fed = federation(EACH[0])
        same = [client if client.id != 20 else replace(client, train=fed.by_id[N].train) for client in fed.clients]
        fed = toy.again(fed, clients=tuple(same))
        assert not torch.equal(shown(fed, 20)[0], shown(fed)[0])

    def test_are_each_images_own(self) -> None:
        """Of one image many times, some are flipped and others are not."""
        fed = federation({"flip": {"p": 0.5}})
        own = PrivateSamples(Workspace(fed), N, 1)
        images = own.inputs(torch.zeros(16, dtype=torch.int64))
        plain = shown(federation())[0][0]
        flipped = [torch.equal(image, plain.flip(-1)) for image in images]
        assert 2 < sum(flipped) < 14
        assert all(turned or torch.equal(image, plain) for turned, image in zip(flipped, images, strict=True))

    def test_the_same_batch_again_is_the_same(self) -> None:
        own = PrivateSamples(Workspace(federation(EACH[0])), N, 1)
        assert torch.equal(own.inputs(BATCH), own.inputs(BATCH))

    def test_come_in_their_order(self) -> None:
        crop, flip = {"crop": {"padding": 2}}, {"flip": {"p": 1.0}}
        first = shown(federation(crop, flip))[0][0]  # of the next image, the flip's draw stands before
        assert torch.equal(first, shown(federation(crop))[0][0].flip(-1))
        assert not torch.equal(shown(federation(flip, crop))[0], shown(federation(crop, flip))[0])

    def test_move_no_other_draw(self) -> None:
        """What changes nothing leaves shuffling and dropout as they were; global generators too."""
        before = toy.global_generators()
        still, plain = (fed.train(fed.initial_models(), 1) for fed in (federation({"flip": {"p": 0.0}}), federation()))
        assert toy.same(still, plain)
        assert toy.same(toy.global_generators(), before)

    def test_nobody_elses_order_matters(self) -> None:
        fed = federation(*EACH)
        models = fed.initial_models()
        together = fed.train(models, 2)
        assert toy.same(toy.again(fed, executor=toy.ReverseExecutor()).train(models, 2), together)
        assert toy.same(toy.again(fed).train({12: models[12]}, 2)[12], together[12])


def test_predictions_and_public_images_are_left_alone() -> None:
    plain, changed = federation(), federation(*EACH)
    models, batch = plain.initial_models(), plain.public_batch(1)
    for verb in (
        lambda fed: fed.evaluate(models, "train"),
        lambda fed: fed.logits(models, batch),
        lambda fed: fed.distill(models, torch.full((5, 13, 3), 1 / 3), batch, 1),
    ):
        assert toy.same(verb(plain), verb(changed))


@pytest.mark.parametrize(
    ("change", "shape", "dtype", "message"),
    [
        ({"crop": {"padding": 4}}, (5, 9, 128), torch.float32, "has crop, and the clients' samples are features"),
        ({"flip": {}}, (5, 1, 8, 8), torch.float32, "has flip, and the clients' samples are features"),
        ({"color_jitter": {}}, (5, 4, 8, 8), torch.uint8, "has color_jitter, which changes colors, and images have 4"),
        ({"rand_augment": {}}, (5, 2, 8, 8), torch.uint8, "has rand_augment, which changes colors, and images have 2"),
    ],
)
def test_what_cannot_be_changed_so_is_refused(
    change: dict[str, Any], shape: tuple[int, ...], dtype: Any, message: str
) -> None:
    with pytest.raises(InputError, match=f"^training.augmentation {message}"):
        augmentation.check((change,), torch.zeros(shape, dtype=dtype))
    fed = toy.alike(clients=1)
    split = LabeledDataset(torch.zeros(shape, dtype=dtype), torch.zeros(5, dtype=torch.int64))
    with pytest.raises(InputError, match=f"^training.augmentation {message}"):
        toy.again(
            fed,
            clients=(replace(fed.clients[0], train=split),),
            training=LocalTraining(augmentation=(change,)),
        )


@pytest.mark.parametrize("channels", [1, 2, 3, 4])
def test_every_number_of_channels_that_is_allowed_works(channels: int) -> None:
    images = torch.randint(0, 256, (6, channels, 8, 8), dtype=torch.uint8)
    for change in EACH if channels in (1, 3) else EACH[:2]:
        augmentation.check((change,), images)
        changed = augmentation.make((change,), images.shape[1:])
        assert changed is not None
        assert changed(images).shape == images.shape
