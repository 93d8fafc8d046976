"""FedRoD: a common model for balanced classes, and heads of one's own that are added to its head."""

from dataclasses import replace

import by_hand
import torch
import toy
from torch.nn.functional import linear, log_softmax

from ktpfl_pipeline.core.settings import LocalTraining
from ktpfl_pipeline.methods.fedrod import FedRoD

EVERYONE, HEAD = list(toy.IDS), ["4.weight", "4.bias"]


def test_a_round_is_that_of_a_plain_implementation() -> None:
    fed, method, cohort = toy.alike("conv", dtype="float64"), FedRoD(), [3, 7, 12]
    state, _ = method.round(method.init(fed), [3, 7], 1, fed)  # 12 has no head yet
    after, report = method.round(state, cohort, 2, fed)
    uploads, sizes, names = [], [], fed.trained_names
    for n in cohort:
        module, samples = by_hand.module(fed, n, state.common), fed.by_id[n].train
        zeros = {name: torch.zeros_like(state.common[name]) for name in HEAD}
        head = [state.models.get(n, zeros)[name].clone().requires_grad_() for name in HEAD]
        prior = torch.stack([(samples.labels == k).sum() for k in range(toy.CLASSES)]).double().log()
        for batch in by_hand.batches(fed, n, 2):
            feature, rows = module[:-1](by_hand.pixels(samples)[batch]), torch.arange(len(batch))
            logits = module[-1](feature)
            both = logits.detach() + linear(feature.detach(), *head)
            labels = samples.labels[batch]
            generic, personal = (-log_softmax(z, dim=1)[rows, labels].mean() for z in (logits + prior, both))
            by_hand.descend(list(module.parameters()), generic, 0.1)
            by_hand.descend(head, personal, 0.1)
        uploads.append(dict(module.named_parameters()))
        sizes.append(len(samples))
        local = {**uploads[-1], **{name: uploads[-1][name] + own for name, own in zip(HEAD, head, strict=True)}}
        local = {name: tensor.detach() for name, tensor in local.items()}
        assert by_hand.differ({name: report.after_local[n][name] for name in names}, local) < 1e-12
        assert by_hand.differ(after.models[n], dict(zip(HEAD, head, strict=True))) < 1e-12
    common = {
        name: sum(size * model[name] for size, model in zip(sizes, uploads, strict=True)) / sum(sizes) for name in names
    }
    assert by_hand.differ({name: after.common[name] for name in names}, common) < 1e-12
    found = method.personal(after, EVERYONE, fed)
    for n in EVERYONE:
        own = after.models.get(n, {})
        assert all(torch.equal(found[n][name], after.common[name] + own.get(name, 0)) for name in found[n])


def test_with_balanced_classes_the_common_model_is_fedavgs() -> None:
    """The prior is then the same for all classes; and a client's head changes nothing of what it uploads."""
    fed = toy.alike("conv", 1, dtype="float64")
    train = fed.clients[0].train
    balanced = train.take(torch.cat([(train.labels == k).nonzero().flatten()[:2] for k in range(toy.CLASSES)]))
    fed = toy.again(fed, clients=(replace(fed.clients[0], train=balanced),))
    after, _ = FedRoD().round(FedRoD().init(fed), [3], 1, fed)
    assert toy.distance({3: after.common}, fed.train(fed.initial_models(), 1)) < 1e-12


def test_a_class_that_a_client_does_not_have_breaks_nothing() -> None:
    """Nor has label smoothing a say in the balanced softmax: against its prior it would raise that class above all."""
    plain = LocalTraining(epochs=2, batch_size=8, learning_rate=0.1)
    fed = toy.alike("conv", training=plain)
    first, *rest = fed.clients
    kept = first.train.take(first.train.labels.nonzero().flatten())
    fed = toy.again(fed, clients=(replace(first, train=kept), *rest))
    after, _ = FedRoD().round(FedRoD().init(fed), EVERYONE, 1, fed)
    assert toy.finite(after)
    smooth = toy.again(fed, training=replace(plain, label_smoothing=0.1))
    smoothed, _ = FedRoD().round(FedRoD().init(smooth), EVERYONE, 1, smooth)
    assert toy.same(smoothed.common, after.common)
    assert not toy.same(smoothed.models, after.models)
