"""FedMRL: a common extractor beside the own one, and two heads on nested features."""

import by_hand
import pytest
import torch
import toy
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from ktpfl_pipeline.core.metrics import Traffic
from ktpfl_pipeline.core.rounds.newcomers import judge
from ktpfl_pipeline.methods.fedmrl import FedMRL

EVERYONE = list(toy.IDS)
WIDTHS = {"linear": 64, "conv": 36, "mlp": 12, "both": 36}


class Plain:
    """A client's parts, written out."""

    def __init__(self, own: nn.Module, projector: dict[str, Tensor], width: int) -> None:
        self.extractor, self.head = own[:-1], own[-1]
        self.projector = nn.Linear(8 + width, width).double()
        self.projector.load_state_dict(projector)

    def parameters(self) -> list[Tensor]:
        return [*self.extractor.parameters(), *self.head.parameters(), *self.projector.parameters()]

    def fused(self, common: nn.Module, images: Tensor) -> Tensor:
        general = by_hand.pooled(common(images), 8)
        return self.projector(torch.cat([general, self.extractor(images)], dim=1))


def test_rounds_equal_a_plain_implementation() -> None:
    """The common extractor is the conv's, its 36 features averaged to 8; clients are linear and convolutional."""
    fed, method = toy.federation(architectures=("linear", "conv"), dtype="float64"), FedMRL("conv", 8)
    state = method.init(fed)
    plain = {}
    for n in EVERYONE:
        architecture = fed.by_id[n].architecture
        projector = {name: state.models[n][f"projector:conv.{name}"] for name in ("weight", "bias")}
        own = by_hand.module(fed, n, fed.initial_model(architecture))
        plain[n] = Plain(own, projector, WIDTHS[architecture])
    extractor = toy.build("conv").double()
    extractor.load_state_dict(fed.initial_model("conv"))
    extractor, head = extractor[:-1], nn.Linear(8, 3).double()
    head.load_state_dict(state.head)
    for t, cohort in ((1, EVERYONE), (2, [7, 12])):
        state, report = method.round(state, cohort, t, fed)
        copies = []
        for n in cohort:
            common, small = toy.build("conv").double()[:-1], nn.Linear(8, 3).double()
            common.load_state_dict(extractor.state_dict())
            small.load_state_dict(head.state_dict())
            samples = fed.by_id[n].train
            for batch in by_hand.batches(fed, n, t):
                fused, labels = plain[n].fused(common, by_hand.pixels(samples)[batch]), samples.labels[batch]
                loss = cross_entropy(plain[n].head(fused), labels) + cross_entropy(small(fused[:, :8]), labels)
                by_hand.descend([*plain[n].parameters(), *common.parameters(), *small.parameters()], loss, 0.1)
            copies.append((len(samples), common, small))
            check(fed, method, report.after_local, plain, common, n)
        size = sum(weight for weight, *_ in copies)
        for place, module in ((1, extractor), (2, head)):
            states = [(copy[0], copy[place].state_dict()) for copy in copies]
            mean = {
                name: sum(weight * own[name] for weight, own in states) / size
                if value.is_floating_point()
                else max(own[name] for _, own in states)
                for name, value in module.state_dict().items()
            }
            module.load_state_dict(mean)
        assert by_hand.differ(state.head, head.state_dict()) < 1e-12
        for n in EVERYONE:
            check(fed, method, method.personal(state, EVERYONE, fed), plain, extractor, n)


def check(fed, method, models, plain, common, n) -> None:  # type: ignore[no-untyped-def]
    """Compare what the module that the engine builds says with the parts', in eval mode."""
    images, mine = by_hand.pixels(fed.by_id[n].test), plain[n]
    space = fed.executor.workspace(fed)
    for part in (common, mine.extractor):
        part.eval()
    with torch.no_grad():
        expected = mine.head(mine.fused(common, images))
        found = space.module(n, models[n]).eval()(images)
    for part in (common, mine.extractor):
        part.train()
    assert torch.allclose(found, expected, rtol=0, atol=1e-12)


def test_common_features_are_at_most_those_of_the_narrowest_model() -> None:
    """The mlp's 12: the common head reads the first of all fused features."""
    fed = toy.federation()
    for asked, width in ((64, 12), (5, 5)):
        assert FedMRL("linear", asked).init(fed).head["weight"].shape == (3, width)


def test_a_client_that_was_never_sampled_has_the_common_extractor() -> None:
    fed, method = toy.federation(), FedMRL("conv")
    state, _ = method.round(method.init(fed), [3, 7], 1, fed)
    found = method.personal(state, [3, 20], fed)
    shared = {name for name in found[3] if name.startswith("common.")}
    assert len(shared) == 7  # a convolution, and BatchNorm's five
    assert all(found[20][name] is found[3][name] for name in shared)
    joined = method.join(state, method.personal(state, [3, 7, 11, 12], fed), [20], fed)
    assert toy.same(joined.models[20], found[20])


def test_newcomers_with_a_smaller_and_narrower_model_take_the_common_model_that_there_is() -> None:
    whole = toy.federation(architectures=("conv", "conv", "conv", "linear", "mlp"))  # of 36, 64 and 12 features
    fed, method = toy.again(whole, clients=whole.clients[:3]), FedMRL()
    state, _ = method.round(method.init(fed), [3, 7, 11], 1, fed)
    found = judge(method, state, fed, whole.clients[3:], (1,))
    assert state.head["weight"].shape == (3, 36)
    assert [len(values) for values in found.accuracy.values()] == [2, 2]


@pytest.mark.parametrize(("common", "numbers"), [("conv", 40 + 16), ("mlp", 780)])
def test_extractor_and_head_travel_both_ways(common: str, numbers: int) -> None:
    fed = toy.federation()
    _, report = FedMRL(common, 10).round(FedMRL(common, 10).init(fed), [12, 3], 1, fed)
    size = 4 * (numbers + 33)
    assert report.traffic == dict.fromkeys([12, 3], Traffic(parameters_up=size, parameters_down=size))


def test_samples_go_through_two_models() -> None:
    fed = toy.alike("conv", 2)
    _, report = FedMRL("linear").round(FedMRL("linear").init(fed), [3, 7], 1, fed)
    samples = [fed.current.samples[n].total() for n in report.traffic]
    assert samples == [2 * 2 * 16, 2 * 2 * 17]  # E = 2 epochs of 16 and 17 images
