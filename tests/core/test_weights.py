"""Weights of one model and of many: copies, averages and bytes, worked by hand."""

import copy
from typing import ClassVar

import pytest
import torch
import toy
from torch import Tensor, nn

from ktpfl_pipeline.core import weights as core_weights
from ktpfl_pipeline.core.weights import (
    Handle,
    Params,
    average,
    gram,
    matrix_of,
    mix,
    opened,
    params_of,
    select,
    squared_distances,
    vector_of,
    wire_bytes,
    with_vector,
)


def model(*weights: float, count: int = 0, dtype: torch.dtype = torch.float32) -> Params:
    return {"weight": torch.tensor(weights, dtype=dtype), "count": torch.tensor(count)}


def shares(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


class TestParamsOf:
    def test_has_parameters_and_buffers(self) -> None:
        module = toy.build("conv")
        params = params_of(module)
        assert list(params) == list(module.state_dict())
        assert toy.same(params, dict(module.state_dict()))

    def test_is_a_copy_that_needs_no_gradient(self) -> None:
        module = nn.Linear(2, 2)
        params = params_of(module)
        before = copy.deepcopy(params)
        nn.init.constant_(module.weight, 7.0)
        assert toy.same(params, before)
        assert not any(tensor.requires_grad for tensor in params.values())


class TestAverage:
    def test_weighted_by_hand(self) -> None:
        mixed = average([model(4.0, 8.0), model(0.0, -8.0), model(8.0, 0.0)], shares(0.5, 0.25, 0.25))
        assert mixed["weight"].tolist() == [4.0, 2.0]  # 2 + 0 + 2 and 4 - 2 + 0

    def test_keeps_every_shape(self) -> None:
        params = params_of(toy.build("conv"))
        doubled = {name: 3 * tensor for name, tensor in params.items()}
        mixed = average([params, doubled], shares(0.5, 0.5))
        assert list(mixed) == list(params)
        for name, tensor in params.items():
            if tensor.is_floating_point():
                assert torch.allclose(mixed[name], 2 * tensor, rtol=1e-6)

    def test_statistics_are_averaged_and_of_counters_the_largest_is_taken(self) -> None:
        models = [params_of(toy.build("conv")) for _ in range(2)]
        for params, mean, count in zip(models, (1.0, 5.0), (3, 8), strict=True):
            params["1.running_mean"], params["1.num_batches_tracked"] = torch.full((4,), mean), torch.tensor(count)
        mixed = average(models, shares(0.75, 0.25))
        assert toy.same(
            mixed["1.num_batches_tracked"], average(models[::-1], shares(0.25, 0.75))["1.num_batches_tracked"]
        )
        assert mixed["1.running_mean"].tolist() == [2.0] * 4
        assert mixed["1.num_batches_tracked"].item() == 8
        assert mixed["1.num_batches_tracked"].dtype == torch.int64

    def test_is_summed_in_float64(self) -> None:
        """In float32 the one would vanish beside 2^25."""
        models = [model(2.0**25), model(1.0), model(-(2.0**25))]
        assert average(models, shares(1.0, 1.0, 1.0))["weight"].tolist() == [1.0]

    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    def test_has_the_dtype_of_the_models(self, dtype: torch.dtype) -> None:
        assert average([model(1.0, dtype=dtype), model(2.0, dtype=dtype)], shares(0.5, 0.5))["weight"].dtype == dtype

    @pytest.mark.parametrize("block", [1, 7, 20])
    def test_large_tensors_are_combined_in_blocks(self, monkeypatch: pytest.MonkeyPatch, block: int) -> None:
        models = [model(*torch.randn(17, generator=torch.Generator().manual_seed(n)).tolist()) for n in range(3)]
        weights = torch.tensor([[0.5, 0.25, 0.25], [0.0, 1.0, 0.0]], dtype=torch.float64)
        whole, products = mix(models, weights), gram(models, ["weight"])
        monkeypatch.setattr(core_weights, "BLOCK", block)  # of 3 models: 1, 2 and 6 of 17 weights at a time
        for made, other in zip(mix(models, weights), whole, strict=True):
            assert torch.allclose(made["weight"], other["weight"], rtol=1e-6)
        assert torch.allclose(gram(models, ["weight"]), products, rtol=1e-12)

    def test_one_model_is_itself_and_a_new_one(self) -> None:
        params = params_of(toy.build("both"))
        mixed = average([params], shares(1.0))
        assert toy.same(mixed, params)
        assert not any(mixed[name].data_ptr() == tensor.data_ptr() for name, tensor in params.items())

    def test_leaves_the_models_as_they_were(self) -> None:
        models = [params_of(toy.build("conv")) for _ in range(3)]
        before = copy.deepcopy(models)
        average(models, shares(0.2, 0.3, 0.5))
        assert toy.same(models, before)


class TestMix:
    def test_a_model_for_each_row_by_hand(self) -> None:
        models = [model(4.0, 8.0, count=3), model(0.0, -8.0, count=9)]
        mixed = mix(models, torch.tensor([[1.0, 0.0], [0.25, 0.75], [2.0, -1.0]]))
        assert [params["weight"].tolist() for params in mixed] == [[4.0, 8.0], [1.0, -4.0], [8.0, 24.0]]
        assert [params["count"].item() for params in mixed] == [3, 9, 9]

    def test_a_row_of_one_copies_to_the_bit(self) -> None:
        models = [params_of(toy.build("both")) for _ in range(3)]
        for row, copied in enumerate(mix(models, torch.eye(3, dtype=torch.float64))):
            assert toy.same(copied, models[row])

    def test_the_models_share_no_memory(self) -> None:
        one, other = mix([params_of(toy.build("both"))], torch.ones(2, 1))
        assert not any(one[name].data_ptr() == other[name].data_ptr() for name in one)


class TestVectors:
    def test_a_matrix_has_the_vector_of_each_model_as_a_row(self) -> None:
        models = [params_of(toy.build("conv")) for _ in range(3)]
        names = [name for name, _ in toy.build("conv").named_parameters()]
        assert torch.equal(matrix_of(models, names), torch.stack([vector_of(params, names) for params in models]))


class TestSelect:
    def test_takes_those_and_in_that_order(self) -> None:
        models = {3: model(1.0), 7: model(2.0), 11: model(3.0)}
        chosen = select(models, [11, 3])
        assert list(chosen) == [11, 3]
        assert chosen[11] is models[11]

    def test_who_is_not_there_is_missed(self) -> None:
        with pytest.raises(KeyError):
            select({3: model(1.0)}, [7])

    def test_one_after_another(self) -> None:
        params = {"a": torch.tensor([[1.0, 2.0], [3.0, 4.0]]), "count": torch.tensor(7), "b": torch.tensor([5.0])}
        assert vector_of(params, ["b", "a"]).tolist() == [5.0, 1.0, 2.0, 3.0, 4.0]
        back = with_vector(params, ["b", "a"], torch.tensor([0.0, 1.0, 2.0, 3.0, 9.0]))
        assert back["b"].tolist() == [0.0]
        assert back["a"].tolist() == [[1.0, 2.0], [3.0, 9.0]]
        assert back["count"] is params["count"]
        assert params["b"].tolist() == [5.0]


class TestGram:
    def test_by_hand(self) -> None:
        """Points (0, 0), (3, 0), (0, 3) have the mean (1, 1)."""
        products = gram([model(0.0, 0.0), model(3.0, 0.0), model(0.0, 3.0)], ["weight"])
        assert products.tolist() == [[2.0, -1.0, -1.0], [-1.0, 5.0, -4.0], [-1.0, -4.0, 5.0]]
        assert squared_distances(products).tolist() == [[0.0, 9.0, 9.0], [9.0, 0.0, 18.0], [9.0, 18.0, 0.0]]

    def test_small_distances_survive_far_from_zero(self) -> None:
        """Around 2^20, where a square has no room for what is small."""
        far, apart = 2.0**20, 2.0**-10
        models = [model(far, dtype=torch.float64), model(far + apart, dtype=torch.float64)]
        assert squared_distances(gram(models, ["weight"]))[0, 1].item() == pytest.approx(apart**2, rel=1e-9)

    def test_only_what_is_named_counts(self) -> None:
        models = [{"w": torch.zeros(2), "mean": torch.full((2,), float(i))} for i in range(2)]
        assert not squared_distances(gram(models, ["w"])).any()
        assert squared_distances(gram(models, ["w", "mean"]))[0, 1] == 2.0


class TestWireBytes:
    @pytest.mark.parametrize(
        ("architecture", "numbers"),
        [
            ("linear", 64 * 3 + 3),
            ("conv", (4 * 9 + 4) + 4 * 4 + (36 * 3 + 3)),  # BatchNorm: scale, shift, mean and variance, no counter
            ("mlp", (64 * 12 + 12) + (12 * 3 + 3)),
        ],
    )
    def test_four_a_number(self, architecture: str, numbers: int) -> None:
        assert wire_bytes(params_of(toy.build(architecture))) == 4 * numbers

    def test_float64_travels_as_float32(self) -> None:
        assert wire_bytes(model(1.0, 2.0, 3.0, dtype=torch.float64)) == 12


class Elsewhere(Handle):
    """A model that counts how often it is brought here."""

    def __init__(self, params: Params) -> None:
        self.params = dict(params)
        self.shapes = {name: tensor.to("meta") for name, tensor in params.items()}
        self.opened = 0

    def open(self) -> dict[str, Tensor]:
        self.opened += 1
        return self.params


class TestHandle:
    PARAMS: ClassVar[dict[str, Tensor]] = {"weight": torch.ones(2, 3), "count": torch.tensor(4)}

    def test_names_and_bytes_need_no_opening(self) -> None:
        handle = Elsewhere(self.PARAMS)
        assert list(handle) == ["weight", "count"]
        assert len(handle) == 2
        assert wire_bytes(handle) == wire_bytes(self.PARAMS) == 24
        assert handle.opened == 0

    def test_is_the_model_it_stands_for(self) -> None:
        handle = Elsewhere(self.PARAMS)
        assert handle["weight"] is self.PARAMS["weight"]
        assert {**handle} == self.PARAMS

    def test_a_state_is_opened_at_any_depth(self) -> None:
        handle = Elsewhere(self.PARAMS)
        assert opened({"models": {3: handle}, "list": [handle], "pair": (handle, 1)}) == {
            "models": {3: self.PARAMS},
            "list": [self.PARAMS],
            "pair": (self.PARAMS, 1),
        }
