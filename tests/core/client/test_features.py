"""A model as an extractor and a head: features, class means by hand, and a head that all share."""

import copy
from dataclasses import replace

import by_hand
import pytest
import torch
import torch.nn.functional as F
import toy
from torch import nn

from ktpfl_pipeline.core.client import features
from ktpfl_pipeline.core.client.operations import train
from ktpfl_pipeline.core.client.workspace import Workspace
from ktpfl_pipeline.core.dataset import LabeledDataset
from ktpfl_pipeline.core.errors import InputError
from ktpfl_pipeline.core.joint import pooled
from ktpfl_pipeline.core.settings import Compute
from ktpfl_pipeline.methods.shared import common_head

FOUR = (*toy.ARCHITECTURES, "both")


class TestFeatures:
    def test_are_what_enters_the_layer_that_makes_the_logits(self) -> None:
        """The mlp has 12 hidden units; F = 4 averages three neighbors each, times √3."""
        module, images = toy.build("mlp").eval(), torch.randn(5, 1, 8, 8)
        with features.features(module[-1], 4) as seen:
            module(images)
        hidden = module[:4](images)  # (5, 12)
        assert torch.allclose(seen[0], hidden.view(5, 4, 3).mean(dim=2) * 3**0.5, rtol=0, atol=1e-6)

    @pytest.mark.parametrize("architecture", FOUR)
    def test_have_the_common_dimension(self, architecture: str) -> None:
        module = toy.build(architecture)
        for dimension in (1, 12, 64):
            with features.features(module[-1], dimension) as seen:
                module(torch.randn(5, 1, 8, 8))
                module(torch.randn(2, 1, 8, 8))
            assert [feature.shape for feature in seen] == [(5, dimension), (2, dimension)]

    def test_the_dimension_of_the_layer_leaves_them_as_they_are(self) -> None:
        module, images = toy.build("linear"), torch.randn(5, 1, 8, 8)
        with features.features(module[-1], 64) as seen:
            module(images)
        assert torch.equal(seen[0], images.flatten(1))

    @pytest.mark.parametrize(("width", "dimension"), [(12, 4), (3200, 64), (512, 256), (4, 12), (1, 64)])
    def test_keep_their_length(self, width: int, dimension: int) -> None:
        """Where one width divides the other: pooling is an orthogonal projection, or repeats; else nearly so."""
        parts = torch.randn(7, min(width, dimension), dtype=torch.float64)
        repeated = parts.repeat_interleave(max(1, width // dimension), dim=1)
        found = pooled(repeated, dimension)
        assert torch.allclose(found.norm(dim=1), repeated.norm(dim=1), rtol=1e-12)
        if width >= dimension:
            rows = pooled(torch.eye(width, dtype=torch.float64), dimension).T
            assert torch.allclose(rows @ rows.T, torch.eye(dimension, dtype=torch.float64), rtol=0, atol=1e-12)

    def test_positions_of_a_feature_map_are_averaged(self) -> None:
        head, images = nn.Conv2d(2, toy.CLASSES, 8), torch.randn(5, 2, 8, 8)
        with features.features(head, 2) as seen:
            head(images)
        assert torch.allclose(seen[0], images.mean(dim=(2, 3)), rtol=0, atol=1e-6)

    def test_nobody_listens_afterwards(self) -> None:
        module = toy.build("linear")
        with pytest.raises(ZeroDivisionError), features.features(module[-1], 4) as seen:
            raise ZeroDivisionError
        module(torch.randn(5, 1, 8, 8))
        assert seen == []

    def test_a_model_without_a_linear_layer_has_another_head(self) -> None:
        module = nn.Sequential(nn.Conv2d(1, 3, 8), nn.Flatten())
        fed = toy.federation(1, architectures=("flat",), build=lambda name: module)
        assert fed.head("flat").name == "0"
        with pytest.raises(InputError, match=r"'flat' does not fit .*: its head 0 is a Conv2d, not a linear layer"):
            fed.head("flat", "linear")


class TestClassMeans:
    def test_by_hand(self) -> None:
        """Two pixels, white 1 and black -1, which are the linear model's features; no image of class 2.

        Class 0 has (1, 1) and (1, -1), of mean (1, 0); class 1 has (-1, -1). With F = 1 the pixels are averaged,
        times √2.
        """
        images = torch.tensor([[255, 255], [0, 0], [255, 0]], dtype=torch.uint8).view(3, 1, 1, 2)
        fed = toy.federation(
            1,
            architectures=("two",),
            dtype="float64",
            build=lambda name: nn.Sequential(nn.Flatten(), nn.Linear(2, toy.CLASSES)),
            public=images,
            public_batch_size=1,
        )
        client = replace(fed.clients[0], train=LabeledDataset(images, torch.tensor([0, 1, 0])))
        fed = toy.again(fed, clients=(client,))
        root = 2**0.5
        for dimension, expected in ((2, [[1.0, 0.0], [-1.0, -1.0], [0.0, 0.0]]), (1, [[root / 2], [-root], [0.0]])):
            means, owned = common_head.upload_means(fed, fed.initial_models(), dimension)
            assert torch.allclose(means[0], torch.tensor(expected, dtype=torch.float64), rtol=0, atol=1e-15)
            assert owned.dtype == torch.bool and owned.tolist() == [[True, True, False]]

    def test_are_those_of_the_module_in_eval_mode(self) -> None:
        fed = toy.federation(architectures=FOUR)
        models = fed.train(fed.initial_models(), 1)
        some = {n: models[n] for n in (20, 7, 12, 11)}
        means, owned = common_head.upload_means(fed, some, 8)
        assert means.shape == (4, toy.CLASSES, 8)
        assert means.dtype == torch.float64
        for row, (n, params) in enumerate(some.items()):
            client = fed.by_id[n]
            module = toy.build(client.architecture).eval()
            module.load_state_dict(params)
            features = module[:-1](client.train.inputs / 127.5 - 1).flatten(1)
            for label in range(toy.CLASSES):
                own = by_hand.pooled(features[client.train.labels == label], 8)
                assert owned[row, label] and len(own) > 0
                assert torch.allclose(means[row, label], own.double().mean(dim=0), rtol=0, atol=1e-5)

    @pytest.mark.parametrize("size", [1, 4])
    def test_the_prediction_batch_does_not_matter(self, size: int) -> None:
        fed = toy.federation(architectures=FOUR)
        small = toy.again(fed, compute=Compute(device="cpu", prediction_batch=size))
        models = fed.initial_models()
        (means, owned), (others, again) = (common_head.upload_means(each, models, 8) for each in (fed, small))
        assert torch.allclose(means, others, rtol=0, atol=1e-5)
        assert torch.equal(owned, again)

    def test_leave_the_models_as_they_were(self) -> None:
        fed = toy.federation(architectures=FOUR)
        models = fed.initial_models()
        before = copy.deepcopy(models)
        common_head.upload_means(fed, models, 8)
        assert toy.same(models, before)
        assert toy.same(fed.train(models, 1), toy.again(fed).train(models, 1))


class TestCommonHead:
    @pytest.mark.parametrize("dimension", [1, 7, 12, 64])
    @pytest.mark.parametrize("architecture", FOUR)
    def test_a_model_that_wears_it_says_what_it_says_of_pooled_features(
        self, architecture: str, dimension: int
    ) -> None:
        fed = toy.federation(architectures=(architecture,), dtype="float64")
        head, module, images = (
            common_head.initial(fed, dimension),
            toy.build(architecture).double().eval(),
            toy.samples(5, 1),
        )
        module.load_state_dict(common_head.with_heads(fed, {3: fed.initial_models()[3]}, {3: head})[3])
        pixels = images.inputs.double() / 127.5 - 1
        found = module(pixels)
        shrunk = by_hand.pooled(module[:-1](pixels).flatten(1), dimension)
        assert torch.allclose(found, F.linear(shrunk, head["weight"], head["bias"]), rtol=0, atol=1e-13)
        layer = Workspace(fed).linear(head)
        with features.replaced_head(module, str(len(module) - 1), layer):
            assert torch.allclose(module(pixels), found, rtol=0, atol=1e-13)
            assert any(parameter is layer.weight for parameter in module.parameters())

    def test_the_own_head_comes_back(self) -> None:
        fed, module = toy.federation(), toy.build("mlp")
        own, common = module[-1], Workspace(fed).linear(common_head.initial(fed, 4))
        with pytest.raises(ZeroDivisionError), features.replaced_head(module, "4", common):
            raise ZeroDivisionError
        assert module[-1] is own

    def test_with_all_features_training_is_that_of_an_own_head(self) -> None:
        """The linear model's 64 pixels with F = 64: nothing is pooled, and the model is all head."""
        fed = toy.federation(1, architectures=("linear",))
        start = fed.initial_model("linear")
        head = {"weight": start["1.weight"], "bias": start["1.bias"]}
        space = fed.executor.workspace(fed)
        params, trained = features.train_common_head(space, 3, start, head, 1).value
        assert toy.same(params, train(space, 3, start, 1).value)
        assert torch.equal(params["1.weight"], trained["weight"])

    def test_starts_alike_for_one_seed_and_draws_nothing_of_others(self) -> None:
        fed, before = toy.federation(), toy.global_generators()
        assert toy.same(common_head.initial(fed, 5), common_head.initial(toy.again(fed), 5))
        assert not toy.same(common_head.initial(fed, 5), common_head.initial(toy.again(fed, seed=1), 5))
        assert toy.same(toy.global_generators(), before)

    def test_a_model_whose_head_has_no_bias_is_refused(self) -> None:
        build = lambda name: nn.Sequential(nn.Flatten(), nn.Linear(64, toy.CLASSES, bias=False))  # noqa: E731
        fed = toy.federation(1, build=build)
        with pytest.raises(InputError, match="its head 1 has no bias"):
            common_head.with_heads(fed, fed.initial_models(), {3: common_head.initial(fed, 4)})
