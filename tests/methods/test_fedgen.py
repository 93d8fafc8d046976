"""FedGen: heads are averaged, and generated features tell them of classes that a client does not have."""

import by_hand
import torch
import toy
from torch import nn
from torch.nn.functional import cross_entropy, linear, one_hot

from ktpfl_pipeline.core import engine
from ktpfl_pipeline.core.engine import Schedule
from ktpfl_pipeline.core.metrics import Traffic
from ktpfl_pipeline.methods.fedgen import FedGen, drawn, generator_of
from ktpfl_pipeline.methods.lg_fedavg import LGFedAvg

EVERYONE = list(toy.IDS)


def test_rounds_equal_a_plain_implementation() -> None:
    """Shared are the draws: of classes and noise, which a client and the server take a batch at a time."""
    fed = toy.federation(architectures=("linear", "conv"), dtype="float64")
    method = FedGen(dimension=6, weight=0.4, noise=2, hidden=5, rate=0.3, steps=4, batch=9)
    state = method.init(fed)
    bodies = {n: by_hand.module(fed, n, params)[:-1] for n, params in state.models.items()}
    head = nn.Linear(6, 3).double()
    head.load_state_dict(state.head)
    server = nn.Sequential(nn.Linear(5, 5), nn.ReLU(), nn.Linear(5, 6)).double()
    server.load_state_dict(state.generator)
    shares = [1 / 3] * 3
    for t, cohort in ((1, EVERYONE), (2, [3, 12])):
        state, _ = method.round(state, cohort, t, fed)
        heads = []
        for n in cohort:
            own = nn.Linear(6, 3).double()
            own.load_state_dict(head.state_dict())
            samples, stream = fed.by_id[n].train, fed.stream("generated features", t, n)
            for batch in by_hand.batches(fed, n, t):
                feature = by_hand.pooled(bodies[n](by_hand.pixels(samples)[batch]), 6)
                made, classes = draw(server, shares, len(batch), stream)
                loss = cross_entropy(own(feature), samples.labels[batch])
                loss = loss + 0.4 * cross_entropy(own(made.detach()), classes)
                by_hand.descend([*bodies[n].parameters(), *own.parameters()], loss, 0.1)
            heads.append(own)
        labels = torch.cat([fed.by_id[n].train.labels for n in cohort])
        shares = [(labels == label).sum().item() / len(labels) for label in range(3)]
        stream = fed.stream("generator", t)
        for _ in range(4):
            made, classes = draw(server, shares, 9, stream)
            logits = sum(own(made) for own in heads) / len(heads)
            by_hand.descend(list(server.parameters()), cross_entropy(logits, classes), 0.3)
        sizes = [len(fed.by_id[n].train) for n in cohort]
        for name in ("weight", "bias"):
            mean = sum(size * getattr(own, name).detach() for size, own in zip(sizes, heads, strict=True)) / sum(sizes)
            head.load_state_dict({**head.state_dict(), name: mean})
        assert by_hand.differ(state.head, head.state_dict()) < 1e-12
        assert by_hand.differ(state.generator, server.state_dict()) < 1e-12
        for n in (7, 12):  # convolutional; the others are all head
            found = by_hand.module(fed, n, state.models[n])[:-1]
            assert by_hand.differ(found.state_dict(), bodies[n].state_dict()) < 1e-12


def draw(
    server: nn.Module, shares: list[float], number: int, stream: torch.Generator
) -> tuple[torch.Tensor, torch.Tensor]:
    classes = torch.multinomial(torch.tensor(shares, dtype=torch.float64), number, replacement=True, generator=stream)
    noise = torch.randn(number, 2, generator=stream, dtype=torch.float64)
    return server(torch.cat([noise, one_hot(classes, 3)], dim=1)), classes


def test_without_weight_it_is_lg_fedavg() -> None:
    schedule = Schedule(rounds=3, participation=0.6)
    run, other = (engine.run(method, toy.federation(), schedule) for method in (FedGen(weight=0.0), LGFedAvg()))
    assert toy.same(run.state.models, other.state.models)
    assert toy.same(run.state.head, other.state.head)


def test_the_generator_learns_features_that_heads_classify() -> None:
    """Of features that it makes after two rounds, the common head tells the class."""
    fed, method = toy.federation(), FedGen(dimension=8)
    state, accuracy = method.init(fed), []
    for t in (1, 2):
        module = generator_of(32 + 3, 256, 8)
        module.load_state_dict(state.generator)
        ((inputs, classes),) = drawn(module, state.labels, [300], torch.Generator().manual_seed(0))
        features = module(inputs)
        logits = linear(features, state.head["weight"], state.head["bias"])
        accuracy.append((logits.argmax(dim=1) == classes).double().mean().item())
        state, _ = method.round(state, EVERYONE, t, fed)
    assert accuracy[0] < 0.6
    assert accuracy[1] > 0.95


def test_classes_are_drawn_as_the_cohort_has_them() -> None:
    fed = toy.federation()
    state, _ = FedGen().round(FedGen().init(fed), [7, 20], 1, fed)
    labels = torch.cat([fed.by_id[n].train.labels for n in (7, 20)])
    assert torch.allclose(state.labels, labels.bincount().double() / len(labels), rtol=0, atol=1e-15)
    module = generator_of(4, 3, 2).double()
    batches = drawn(module, torch.tensor([0.0, 1.0, 0.0]), [50, 20], torch.Generator())
    assert [classes.tolist() for _, classes in batches] == [[1] * 50, [1] * 20]


def test_the_head_goes_up_and_the_generator_comes_down_with_it() -> None:
    fed = toy.federation()
    _, report = FedGen(dimension=64).round(FedGen(dimension=64).init(fed), [7, 20], 1, fed)
    head, generator = 65 * 3, (32 + 3 + 1) * 256 + 257 * 64
    expected = Traffic(parameters_up=4 * head, parameters_down=4 * (head + generator))
    assert report.traffic == dict.fromkeys([7, 20], expected)
