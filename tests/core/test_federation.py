"""What every method is given: initial models, public batches, weights, positions."""

from collections import Counter

import pytest
import torch
import toy

from ktpfl_pipeline.core.federation import Compute


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

    @pytest.mark.parametrize(("transport", "size"), [("float32", 13 * 256), ("uint8", 13 * 64), ("indices", 13 * 4)])
    def test_bytes(self, transport: str, size: int) -> None:
        assert toy.federation(public_transport=transport).public_bytes() == size


class TestCohortHelpers:
    def test_data_weights_by_hand(self) -> None:
        weights = toy.federation().data_weights([3, 11, 20])  # 16, 20 and 14 images
        assert weights.tolist() == pytest.approx([0.32, 0.40, 0.28], abs=1e-16)
        assert weights.dtype == torch.float64
        assert toy.federation().data_weights(list(toy.IDS)).sum().item() == pytest.approx(1.0, abs=1e-15)

    def test_positions_are_rows_not_ids(self) -> None:
        fed = toy.federation()
        assert fed.positions([7, 20]).tolist() == [1, 4]
        assert fed.positions([20, 3]).tolist() == [4, 0]

    def test_clients_by_id(self) -> None:
        fed = toy.federation()
        assert {n: client.id for n, client in fed.by_id.items()} == {n: n for n in toy.IDS}

    def test_streams_are_those_of_the_seed(self) -> None:
        draws = [torch.rand(3, generator=toy.federation(seed=seed).stream("x", 1)) for seed in (0, 0, 1)]
        assert torch.equal(draws[0], draws[1])
        assert not torch.equal(draws[0], draws[2])


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


def test_fields_are_frozen() -> None:
    with pytest.raises(AttributeError):
        toy.federation().seed = 1  # type: ignore[misc]
