"""GPFL: generic and personalized features, class embeddings, and the inputs of the valve."""

from dataclasses import replace
from typing import Any

import by_hand
import pytest
import torch
import toy
from torch import Tensor
from torch.nn.functional import cross_entropy, layer_norm, linear

from ktpfl_pipeline.core.metrics import Traffic
from ktpfl_pipeline.methods.gpfl import GPFL

EVERYONE, OWN = list(toy.IDS), ["4.linear.weight", "4.linear.bias"]
VALVE = [f"4.valve:.{branch}.{layer}.{key}" for branch in (0, 1) for layer in (0, 2) for key in ("weight", "bias")]


def valve(x: Tensor, model: dict[str, Tensor], context: Tensor) -> Tensor:
    """Return the features after the valve, as the paper's equations have them."""
    parts = [model[name] for name in VALVE]
    gamma, beta = (layer_norm(linear(context, a, b).relu(), (36,), c, d) for a, b, c, d in (parts[:4], parts[4:]))
    return (x * (1 + gamma) + beta).relu()


@pytest.mark.parametrize("embeddings", ["received", "own"])
def test_rounds_are_those_of_a_plain_implementation(embeddings: Any) -> None:
    """The second and the third, in which client 12 has no head of its own yet."""
    fed, method = toy.alike("conv", dtype="float64"), GPFL(weight=0.5, decay=0.2, embeddings=embeddings)
    state, _ = method.round(method.init(fed), [3, 7], 1, fed)
    for t, cohort in ((2, [3, 7]), (3, [3, 12])):
        starts = method.personal(state, cohort, fed)
        after, report = method.round(state, cohort, t, fed)
        sums: dict[str, Tensor] = {}
        for n in cohort:
            start, samples = starts[n], fed.by_id[n].train
            module = toy.build("conv").double().train()[:-1]
            module.load_state_dict({name: value for name, value in start.items() if not name.startswith("4.")})
            learned = [*OWN, *VALVE, "4.embedding"]
            model = {name: start[name].clone().requires_grad_() for name in learned}
            shares = torch.stack([(samples.labels == k).double().mean() for k in range(3)])
            source = start["4.embedding"] if embeddings == "received" else state.models.get(n, {}).get("4.embedding")
            inputs = torch.zeros(2, 36).double()
            if source is not None:
                inputs = torch.stack([source.mean(dim=0), shares @ source])
            assert torch.allclose(start["4.contexts"], inputs, rtol=0, atol=1e-14)
            for batch in by_hand.batches(fed, n, t):
                x, labels = module(by_hand.pixels(samples)[batch]), samples.labels[batch]
                fit = cross_entropy(linear(valve(x, model, inputs[1]), *(model[name] for name in OWN)), labels)
                generic, table = valve(x, model, inputs[0]), model["4.embedding"]
                cosines = generic @ table.T / (generic.norm(dim=1)[:, None] * table.norm(dim=1))
                distance = (generic - start["4.embedding"][labels]).square().sum().sqrt()
                decay = sum(model[name].square().sum() for name in (*VALVE, "4.embedding"))
                loss = fit + cross_entropy(cosines, labels) + 0.5 * distance + 0.1 * decay
                by_hand.descend([*module.parameters(), *model.values()], loss, 0.1)
            expected = {**module.state_dict(), **{name: value.detach() for name, value in model.items()}}
            assert by_hand.differ({name: report.after_local[n][name] for name in expected}, expected) < 1e-12
            for name in after.common:
                if after.common[name].is_floating_point():
                    size = len(samples) / sum(len(fed.by_id[m].train) for m in cohort)
                    sums[name] = sums.get(name, 0) + size * expected[name]
        assert by_hand.differ({name: after.common[name] for name in sums}, sums) < 1e-12
        assert set(after.common) == {*sums, "1.num_batches_tracked"}
        state = after


def test_inputs_of_the_valve_by_hand() -> None:
    """Embeddings 0, 30 and 60 in every entry: 30 is the mean; client 3 has 11, 2 and 3 of 16 samples, so 15."""
    fed, method = toy.alike("conv", dtype="float64"), GPFL()
    counts = fed.by_id[3].train.labels.bincount(minlength=3)
    assert counts.tolist() == [11, 2, 3]
    table = torch.tensor([[0.0], [30.0], [60.0]]).double().expand(3, 36)
    found = method.seen({3: {"4.embedding": table}}, fed)[3]["4.contexts"]
    assert torch.allclose(found, torch.tensor([[30.0], [15.0]]).double().expand(2, 36), rtol=0, atol=1e-12)


def test_adaptation_is_a_round_without_the_received_embeddings() -> None:
    fed, method = toy.alike("conv", dtype="float64"), GPFL(weight=2.0)
    state, _ = method.round(method.init(fed), EVERYONE, 1, fed)
    start = method.personal(state, [3, 7], fed)
    adapted = method.adapt(state, start, 2, fed)
    assert toy.same(adapted, replace(method, weight=0.0).train(start, 0, fed))
    assert toy.distance(adapted, method.train(start, 0, fed)) > 1e-6


def test_everything_but_the_own_head_goes_both_ways() -> None:
    """56 numbers of the extractor, two branches of 36 (36 + 1) and twice 36, and three embeddings of 36."""
    fed, method = toy.alike("conv"), GPFL()
    state, report = method.round(method.init(fed), [3, 7], 1, fed)
    size = 4 * (56 + 2 * (36 * 37 + 72) + 3 * 36)
    assert report.traffic == dict.fromkeys([3, 7], Traffic(parameters_up=size, parameters_down=size))
    joined = method.join(state, {}, [12], fed)
    assert joined.traffic == {12: Traffic(parameters_down=size)}
    assert toy.same(joined.models, method.personal(state, [12], fed))
    assert float(joined.models[12]["4.contexts"].abs().min()) > 0
