"""The inversion of paired logits: its parts by hand, and that it recovers what certain predictions tell."""

import math

import inversion
import pytest
import torch
from inversion import asked, blur, classes_of, epsilon, federation, invert, means, scene, scores, ssim, uploads
from torch import Tensor
from torch.nn.functional import one_hot

from ktpfl_pipeline.core.exchange import Upload


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Twenty private and twenty public images of each class."""
    monkeypatch.setitem(inversion.SETS, "digits", (20, 20, ["mlp"]))


def certain(labels: Tensor) -> Upload:
    """Return what a server receives of clients that are sure of the label of each public image."""
    return Upload({}, torch.arange(len(labels)), 20.0 * one_hot(labels, 10).expand(3, -1, -1).float(), torch.empty(0))


class TestSimilarity:
    def test_of_an_image_with_itself_is_one(self) -> None:
        images = torch.rand(3, 1, 8, 8, generator=torch.Generator().manual_seed(0))
        assert torch.allclose(ssim(images, images), torch.ones(3))

    def test_of_flat_images_by_hand(self) -> None:
        """(2 · 0.2 · 0.6 + 1e-4) / (0.04 + 0.36 + 1e-4), and the other factor is one."""
        flat = [torch.full((1, 1, 8, 8), value) for value in (0.2, 0.6)]
        assert ssim(*flat).item() == pytest.approx(0.2401 / 0.4001, rel=1e-4)

    def test_of_an_image_with_its_negative_is_below_zero(self) -> None:
        image = (torch.arange(64).view(1, 1, 8, 8) % 2).float()
        assert ssim(image, 1 - image).item() < -0.9


def test_scores_by_hand() -> None:
    """Recovered images that are those of the next class have no hit, and the others' similarity of the own ones."""
    private = torch.rand(6, 1, 8, 8, generator=torch.Generator().manual_seed(1))
    own, others, hits = scores(private, private)
    assert (own, hits) == (pytest.approx(1.0), 1.0)
    shifted, _, missed = scores(private.roll(1, 0), private)
    assert missed == 0.0
    pairs = [float(ssim(private[i : i + 1], private[j : j + 1])) for i in range(6) for j in range(6) if i != j]
    assert others == pytest.approx(sum(pairs) / 30, rel=1e-5)
    assert shifted < 0.5


def test_the_pair_that_is_asked_by_hand() -> None:
    """α = 5: e^0.2 = 1.2214 of 10.2214 in all, and 1 of 10.2214 for each other class."""
    pair = asked(3)
    assert pair[:10].tolist() == pytest.approx([0.09783] * 3 + [0.11949] + [0.09783] * 6, abs=1e-5)
    assert pair[10:].tolist() == [0.0] * 3 + [1.0] + [0.0] * 6


def test_blurring_leaves_means_of_blocks() -> None:
    """Of 2 x 2 pixels, so that two images with the same means of blocks become one."""
    image = torch.randint(0, 200, (2, 1, 8, 8), generator=torch.Generator().manual_seed(2)).to(torch.uint8)
    swapped = image.view(2, 1, 4, 2, 4, 2).flip(3).reshape(2, 1, 8, 8)
    assert not torch.equal(swapped, image)
    assert torch.equal(blur(swapped), blur(image))
    assert torch.equal(
        blur(torch.full((1, 1, 28, 28), 7, dtype=torch.uint8)), torch.full((1, 1, 28, 28), 7, dtype=torch.uint8)
    )


@pytest.mark.usefixtures("small")
def test_private_classes_are_public_only_in_blurred_images() -> None:
    clients, public = scene("digits", 0)
    owned = [classes_of(client) for client in clients]
    assert len({k for own in owned for k in own}) == 6
    assert [len(client.train) for client in clients] == [40, 40, 40]
    assert torch.equal(public.labels.bincount(), torch.full((10,), 20))
    sharp = {tuple(image.flatten().tolist()) for client in clients for image in client.train.inputs}
    assert not sharp & {tuple(image.flatten().tolist()) for image in public.inputs}
    theirs = torch.isin(public.labels, torch.tensor(owned).flatten())
    assert public.inputs[theirs].float().var() < public.inputs[~theirs].float().var()


@pytest.mark.usefixtures("small")
def test_certain_predictions_give_their_classes_away() -> None:
    """And predictions that are the same for all images do not: each image is then closest to any class."""
    clients, public = scene("digits", 1)
    known = means([public] * 3, clients)
    told, blind = (invert(clients, public, [certain(labels)], 0, 3.0) for labels in (public.labels, 0 * public.labels))
    (like, _, hits), (unlike, _, chance) = (scores(found, known) for found in (told, blind))
    assert like > unlike + 0.2
    assert hits > chance + 0.4


@pytest.mark.usefixtures("small")
def test_uploads_are_what_the_server_received() -> None:
    clients, public = scene("digits", 0)
    plain, encoded = (federation(clients, public.inputs, 0, way) for way in ({}, {"encoding": "top_k", "k": 1}))
    received, accuracy = uploads(encoded, 1)
    assert 0 <= accuracy <= 100
    (upload,) = received
    probabilities = upload.logits.softmax(dim=2)
    assert torch.allclose(probabilities.sort(dim=2).values[..., :9].std(dim=2), torch.zeros(3, 200), atol=1e-6)
    honest = plain.logits(plain.train(plain.initial_models(), 1), upload.batch)
    assert torch.equal(probabilities.argmax(dim=2), honest.argmax(dim=2))
    (untrained,), _ = uploads(plain, 0)
    assert torch.equal(untrained.logits, plain.logits(plain.initial_models(), plain.public_batch(1)))


@pytest.mark.usefixtures("small")
def test_epsilon_of_noise_by_hand() -> None:
    """8 rounds of 200 predictions and σ = 40: ρ = 1, ε = 1 + 2 √(ln 10⁴)."""
    clients, public = scene("digits", 0)
    fed = federation(clients, public.inputs, 0, {"noise": 40.0})
    assert fed.knowledge.noise == 40.0
    assert epsilon({"noise": 40.0}, fed) == pytest.approx(1 + 2 * math.sqrt(math.log(1e4)))
    assert math.isnan(epsilon({}, fed))
