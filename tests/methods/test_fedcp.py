"""FedCP: two heads and a policy, what is trained, and what is uploaded."""

import math
from dataclasses import replace

import by_hand
import pytest
import torch
import toy
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, layer_norm, linear

from ktpfl_pipeline.core.federation import Federation
from ktpfl_pipeline.core.metrics import Traffic
from ktpfl_pipeline.core.weights import Params
from ktpfl_pipeline.methods.fedcp import WIDTHS, FedCP, discrepancy

EVERYONE = list(toy.IDS)
POLICY = [f"4.policy:.{layer}.{key}" for layer in (0, 1) for key in ("weight", "bias")]
OWN = ["4.personal.weight", "4.personal.bias"]


class TestDiscrepancy:
    def test_of_two_numbers_by_hand(self) -> None:
        """0 and 3: each kernel has k(0, 0) + k(3, 3) - 2 k(0, 3) = 2 - 2 exp(-9 / 2c)."""
        found = discrepancy(torch.zeros(1, 1).double(), torch.full((1, 1), 3.0).double())
        assert float(found) == pytest.approx(sum(2 - 2 * math.exp(-4.5 / width) for width in WIDTHS), rel=1e-12)

    def test_is_zero_for_equal_samples(self) -> None:
        x = torch.randn(5, 3, generator=torch.Generator().manual_seed(0)).double()
        assert abs(float(discrepancy(x, x[[3, 1, 4, 0, 2]]))) < 1e-15

    def test_is_the_mean_over_pairs(self) -> None:
        draws = torch.Generator().manual_seed(1)
        x, y = (torch.randn(4, 3, generator=draws).double() * scale for scale in (1, 3))

        def kernel(a: Tensor, b: Tensor) -> Tensor:
            distances = (a[:, None] - b).square().sum(dim=2)
            return sum(torch.exp(-distances / (2 * width)) for width in WIDTHS).mean()

        expected = kernel(x, x) + kernel(y, y) - 2 * kernel(x, y)
        assert abs(float(discrepancy(x, y) - expected)) < 1e-14


def logits(x: Tensor, model: dict[str, Tensor], context: Tensor) -> Tensor:
    """Return the logits of both heads, as the paper's equations have them."""
    policy = [model[name] for name in POLICY]
    hidden = layer_norm(linear(x * context, policy[0], policy[1]), (72,), policy[2], policy[3]).relu()
    odds = hidden[:, :36].exp(), hidden[:, 36:].exp()
    share = odds[0] / (odds[0] + odds[1])
    own, common = ([model[f"4.{kind}.{key}"] for key in ("weight", "bias")] for kind in ("personal", "common"))
    return linear(share * x, *own) + linear((1 - share) * x, *common)


def extractor(fed: Federation, n: int, model: Params) -> nn.Module:
    module = toy.build("conv").double().train()[:-1]
    module.load_state_dict({name: value for name, value in model.items() if not name.startswith("4.")})
    return module


def test_a_round_is_that_of_a_plain_implementation() -> None:
    """The second one, in which client 12 has no head of its own yet."""
    fed, method, cohort = toy.alike("conv", dtype="float64"), FedCP(weight=3.0), [3, 12]
    state, _ = method.round(method.init(fed), [3, 7], 1, fed)
    after, report = method.round(state, cohort, 2, fed)
    sums: dict[str, Tensor] = {}
    for n in cohort:
        start = {
            **method.initial(fed),
            **{name: state.models[n][name] for name in OWN if n in state.models},
            **state.common,
        }
        module, received = extractor(fed, n, start), extractor(fed, n, start)
        rows = start[OWN[0]].sum(dim=0)
        model = {name: start[name].clone().requires_grad_() for name in (*OWN, *POLICY)}
        model |= {name: start[name] for name in ("4.common.weight", "4.common.bias")}
        samples = fed.by_id[n].train
        for batch in by_hand.batches(fed, n, 2):
            inputs, labels = by_hand.pixels(samples)[batch], samples.labels[batch]
            x, before = module(inputs), received(inputs).detach()
            loss = cross_entropy(logits(x, model, rows / rows.norm()), labels) + 3.0 * discrepancy(x, before)
            by_hand.descend([*module.parameters(), *(model[name] for name in (*OWN, *POLICY))], loss, 0.1)
        expected = {**module.state_dict(), **{name: value.detach() for name, value in model.items()}}
        assert by_hand.differ({name: report.after_local[n][name] for name in expected}, expected) < 1e-12
        for key in ("weight", "bias"):
            expected[f"4.common.{key}"] = (expected[f"4.common.{key}"] + expected[f"4.personal.{key}"]) / 2
        for name in after.common:
            if after.common[name].is_floating_point():
                sums[name] = sums.get(name, 0) + len(samples) * expected[name] / 25
    assert by_hand.differ({name: after.common[name] for name in sums}, sums) < 1e-12
    assert set(after.common) == {*sums, "1.num_batches_tracked"}


def test_personal_models_have_the_own_head_and_its_context() -> None:
    fed, method = toy.alike("conv", dtype="float64"), FedCP()
    state, report = method.round(method.init(fed), [3, 7], 1, fed)
    found = method.personal(state, EVERYONE, fed)
    start = method.initial(fed)
    for n in EVERYONE:
        head = (report.after_local if n in (3, 7) else {n: start})[n][OWN[0]]
        assert torch.equal(found[n][OWN[0]], head)
        rows = head.sum(dim=0)
        assert torch.allclose(found[n]["4.context"], rows / rows.norm(), rtol=0, atol=1e-15)
        assert all(torch.equal(found[n][name], state.common[name]) for name in state.common)
    inputs = by_hand.pixels(fed.by_id[3].test)
    module = extractor(fed, 3, found[3]).eval()
    fed_logits = fed.cross_logits({3: found[3]}, "test")[3][:, 0]
    expected = logits(module(inputs), dict(found[3]), found[3]["4.context"])
    assert torch.allclose(fed_logits, expected, rtol=0, atol=1e-12)


def test_both_heads_start_from_the_initial_one() -> None:
    fed, method = toy.alike("conv"), FedCP()
    start, drawn = method.initial(fed), fed.initial_model("conv")
    assert all(torch.equal(start[f"4.{kind}.weight"], drawn["4.weight"]) for kind in ("personal", "common"))
    assert toy.same(start, method.initial(toy.again(fed)))
    assert not toy.same(start, method.initial(toy.again(fed, seed=1)))


def test_gumbel_noise_is_for_training_alone() -> None:
    """It changes the trained model, and no prediction."""
    fed = toy.alike("conv")
    plain, noisy = FedCP(), FedCP(gumbel=True)
    one, other = (method.round(method.init(fed), [3], 1, fed)[1].after_local for method in (plain, noisy))
    assert not toy.same(one, other)
    assert toy.same(other, noisy.round(noisy.init(fed), [3], 1, toy.again(fed))[1].after_local)
    assert torch.equal(fed.cross_logits(other, "test")[3], fed.cross_logits(other, "test")[3])


def test_adaptation_is_a_round_without_the_distance() -> None:
    fed, method = toy.alike("conv", dtype="float64"), FedCP()
    state, _ = method.round(method.init(fed), EVERYONE, 1, fed)
    start = method.personal(state, [3, 7], fed)
    adapted = method.adapt(state, start, 2, fed)
    assert toy.same(adapted, replace(method, weight=0.0).train(start, 0, fed))
    assert all(torch.equal(adapted[n]["4.common.weight"], start[n]["4.common.weight"]) for n in start)
    assert not torch.equal(adapted[3][POLICY[0]], start[3][POLICY[0]])


def test_everything_but_the_own_head_goes_both_ways() -> None:
    """167 numbers of the model, with one head, and the policy: 72 (36 + 1) and twice 72."""
    fed, method = toy.alike("conv"), FedCP()
    state, report = method.round(method.init(fed), [3, 7], 1, fed)
    size = 4 * (167 + 72 * 37 + 144)
    assert report.traffic == dict.fromkeys([3, 7], Traffic(parameters_up=size, parameters_down=size))
    joined = method.join(state, {}, [12], fed)
    assert joined.traffic == {12: Traffic(parameters_down=size)}
    assert toy.same(joined.models, method.personal(state, [12], fed))
