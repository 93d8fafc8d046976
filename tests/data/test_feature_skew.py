"""What clients of a level see, and that those of one level see alike."""

import hashlib
from itertools import product

import pytest
import torch
from cases import case

from ktpfl_pipeline.core.errors import InputError
from ktpfl_pipeline.data.feature_skew import STEP, FeatureSkew

IMAGES = torch.randint(0, 256, (5, 3, 24, 24), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
FEATURES = torch.randn(400, 3, 10, generator=torch.Generator().manual_seed(0))


def seen(kind: str, client: int, inputs: torch.Tensor = IMAGES, levels: int = 4, **more) -> torch.Tensor:
    given = {"split": "train", "seed": 0} | more
    return FeatureSkew(kind, levels, given.pop("seed")).applied(inputs, client, **given)


def test_the_first_level_is_unchanged_and_the_others_differ():
    for kind in ("rotation", "blur", "color", "noise"):
        with case(kind):
            views = [seen(kind, client) for client in range(4)]
            assert torch.equal(views[0], IMAGES)
            assert all(view.shape == IMAGES.shape and view.dtype == torch.uint8 for view in views)
            assert len({view.numpy().tobytes() for view in views}) == 4
            assert torch.equal(seen(kind, 8), IMAGES)


def test_clients_of_one_level_see_alike():
    for kind in ("rotation", "blur", "color"):
        with case(kind):
            assert torch.equal(seen(kind, 2), seen(kind, 6))
            assert torch.equal(seen(kind, 2, split="test"), seen(kind, 2))


def test_quarters_are_exact_and_turn_as_other_angles_do():
    assert torch.equal(seen("rotation", 1), IMAGES.rot90(1, (-2, -1)))
    dot = torch.zeros(1, 1, 21, 21, dtype=torch.uint8)
    dot[..., 10, 18] = 255  # at three o'clock
    eighth = seen("rotation", 1, dot, levels=8)
    row, column = divmod(int(eighth.argmax()), 21)
    assert row < 6
    assert column > 14  # now at half past one
    wide = torch.arange(12, dtype=torch.uint8).reshape(1, 1, 2, 6)
    assert torch.equal(seen("rotation", 2, wide), wide.flip(-1, -2))
    assert seen("rotation", 1, wide).shape == wide.shape


def test_blur_grows():
    spread = [seen("blur", client, IMAGES[:, :1]).double().std() for client in range(4)]
    assert spread == sorted(spread, reverse=True)


def test_hues_turn_by_thirds():
    red = torch.tensor([255, 0, 0], dtype=torch.uint8).view(1, 3, 1, 1)
    assert seen("color", 1, red, levels=3).flatten().tolist() == [0, 255, 0]
    assert seen("color", 2, red, levels=3).flatten().tolist() == [0, 0, 255]


def test_noise_has_its_size_and_streams():
    gray = torch.full((100, 1, 12, 12), 128, dtype=torch.uint8)
    deviations = [seen("noise", client, gray).double().std() for client in range(4)]
    assert deviations == pytest.approx([0, 64 / 3, 128 / 3, 64], rel=0.05)
    drawn = [
        seen("noise", 1, gray),
        seen("noise", 5, gray),
        seen("noise", 1, gray, split="test"),
        seen("noise", 1, gray, seed=1),
    ]
    assert len({each.numpy().tobytes() for each in drawn}) == 4
    assert torch.equal(seen("noise", 1, gray), drawn[0])


@pytest.mark.parametrize(
    ("kind", "digest"),
    [("rotation", "a454ff3a"), ("blur", "1464e0df"), ("color", "a0eaf8b9"), ("noise", "4d93a62e")],
)
def test_every_processor_makes_the_same_pixels(kind: str, digest: str) -> None:
    views = [seen(kind, client, levels=5).numpy().tobytes() for client in range(1, 5)]
    assert hashlib.sha256(b"".join(views)).hexdigest()[:8] == digest


def test_noise_of_features_has_steps() -> None:
    steps = seen("noise", 3, torch.zeros(400, 3)).double() / STEP
    assert torch.equal(steps, steps.round()), "wider than what processors differ in"


def test_noise_of_features_is_in_units_of_their_own():
    """They come standardized."""
    added = seen("noise", 3, FEATURES) - FEATURES
    assert added.std(dim=(0, 2)).tolist() == pytest.approx([0.5, 0.5, 0.5], rel=0.05)


def test_inputs_that_a_skew_does_not_fit_are_rejected():
    with pytest.raises(InputError, match=r"feature_skew is blur, .* are features of shape \(3, 10\): choose noise"):
        FeatureSkew("blur", 4, 0).check(FEATURES)
    with pytest.raises(InputError, match=r"is color, .* have 1 channel: choose rotation"):
        FeatureSkew("color", 4, 0).check(IMAGES[:, :1])
    FeatureSkew("noise", 4, 0).check(FEATURES)
    FeatureSkew("color", 4, 0).check(IMAGES)
    assert len(seen("noise", 3, IMAGES[:0])) == 0


def test_tiny_images():
    for kind, size in product(("rotation", "blur", "color", "noise"), (1, 2, 3)):
        with case(kind, size):
            assert seen(kind, 3, IMAGES[..., :size, :1]).shape == (5, 3, size, 1)


@pytest.mark.parametrize("kind", ["noise", "rotation"])
def test_tokens_are_never_skewed(kind: str) -> None:
    with pytest.raises(InputError, match=rf"partition.feature_skew is {kind}, .* tokens, whose numbers are ids"):
        FeatureSkew(kind, 4, 0).check(torch.zeros(2, 5, dtype=torch.int64))
