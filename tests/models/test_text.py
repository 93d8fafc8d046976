"""Models of texts: what they take, what padding does to them, and classifiers of transformers from a folder."""

import json
import warnings
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn.functional import cross_entropy

from ktpfl_pipeline import models
from ktpfl_pipeline.core import kinds, model_facts, privacy, work
from ktpfl_pipeline.core.dataset import TokenShape
from ktpfl_pipeline.core.errors import InputError
from ktpfl_pipeline.core.settings import Compute
from ktpfl_pipeline.models import pretrained, transformers

NAMES = ("fasttext", "text_cnn", "text_gru", "text_lstm", "text_transformer")
SHAPE = TokenShape((6,), 12, 0)


def built(name: str, shape: TokenShape = SHAPE, classes: int = 3) -> Any:
    torch.manual_seed(0)
    return models.build(name, shape, classes)


@pytest.mark.parametrize(
    ("name", "parameters"),
    [("fasttext", 4160), ("text_cnn", 20640), ("text_gru", 25024), ("text_lstm", 31296), ("text_transformer", 23872)],
)
def test_sizes_on_shakespeare(name: str, parameters: int) -> None:
    model = built(name, TokenShape((80,), 64), 64)
    assert sum(each.numel() for each in model.parameters()) == parameters
    assert work.cost(model, (80,), kinds.TOKENS).flops > 4000


@pytest.mark.parametrize("name", NAMES)
def test_every_model_has_a_linear_head_and_repeats(name: str) -> None:
    model, ids = built(name).eval(), torch.arange(2 * SHAPE[0]).view(2, -1) % 12
    assert torch.equal(model(ids), model(ids))
    facts = model_facts.look(model, SHAPE, kinds.TOKENS)
    assert facts.head is not None
    assert not facts.lacks("biased")
    assert facts.takes_one


@pytest.mark.parametrize("name", NAMES)
def test_padding_changes_nothing(name: str) -> None:
    model = built(name).double().eval()
    short = torch.tensor([[3, 5, 7, 0, 0, 0]])
    longer = built(name, TokenShape((9,), 12, 0)).double().eval()
    state = model.state_dict()
    if name == "text_transformer":
        state["0.positions.weight"] = torch.cat([state["0.positions.weight"], torch.ones(3, 32).double()])
    longer.load_state_dict(state)
    assert torch.allclose(model(short), longer(torch.nn.functional.pad(short, (0, 3))), atol=1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_a_text_of_padding_only_has_finite_logits_and_gradients(name: str) -> None:
    model = built(name)
    model(torch.zeros(2, 6, dtype=torch.int64)).sum().backward()
    assert all(each.grad is None or bool(each.grad.isfinite().all()) for each in model.parameters())


@pytest.mark.parametrize("name", [name for name in NAMES if name != "fasttext"])
def test_all_but_the_mean_tell_the_order_of_words(name: str) -> None:
    model = built(name).eval()
    given = torch.tensor([[1, 2, 3, 4, 5, 6], [6, 5, 4, 3, 2, 1]])
    assert not torch.allclose(*model(given))
    assert torch.allclose(*built("fasttext").eval()(given))


@pytest.mark.parametrize(
    ("name", "shape", "words"),
    [
        ("fasttext", (1, 28, 28), "fasttext takes tokens; these are images of 1 x 28 x 28"),
        ("text_lstm", (9, 128), "text_lstm takes tokens; these are series of 9 x 128"),
        ("mlp", SHAPE, "mlp takes numbers; these are tokens of 6: choose fasttext, text_cnn"),
        ("lenet", SHAPE, "lenet takes images; these are tokens of 6: choose fasttext"),
        ("cnn1d", SHAPE, "cnn1d takes series; these are tokens of 6"),
        ("torchvision:resnet18", SHAPE, "takes images; these are tokens of 6"),
    ],
)
def test_models_of_other_kinds_are_refused(name: str, shape: tuple[int, ...], words: str) -> None:
    with pytest.raises(InputError, match=words):
        models.build(name, shape, 3)


@pytest.mark.parametrize("name", ["fasttext", "text_cnn", "text_transformer"])
def test_dp_sgd_has_the_gradient_of_each_text(name: str) -> None:
    grad_sample = pytest.importorskip("opacus.grad_sample")
    model, ids = built(name).double(), torch.tensor([[1, 2, 0, 0, 0, 0], [3, 4, 4, 5, 6, 7]])
    labels = torch.tensor([0, 2])
    single = []
    for text, label in zip(ids, labels, strict=True):
        loss = cross_entropy(model(text[None]), label[None])
        single.append(torch.autograd.grad(loss, [*model.parameters()]))
    hooks = grad_sample.GradSampleHooks(model, loss_reduction="sum")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # inputs need no gradient
        cross_entropy(model(ids), labels, reduction="sum").backward()
    for parameter, *alone in zip(model.parameters(), *single, strict=True):
        assert torch.allclose(parameter.grad_sample, torch.stack(alone), atol=1e-12)
    hooks.cleanup()


@pytest.mark.parametrize("name", ["text_gru", "text_lstm"])
def test_dp_sgd_refuses_recurrent_models_by_name(name: str) -> None:
    with pytest.raises(InputError, match=f"architectures has {name} with recurrent or attention layers"):
        privacy.check_possible([name], built, SHAPE, kinds.TOKENS, Compute("cpu"))


# A model of one's own.


def bag(shape: TokenShape, classes: int) -> torch.nn.Module:
    """Return a bag of embeddings, which asks the shape for the vocabulary."""
    return torch.nn.Sequential(torch.nn.EmbeddingBag(shape.vocabulary, 4), torch.nn.Linear(4, classes))


def narrow(shape: TokenShape, classes: int) -> torch.nn.Module:
    """Return a model that takes numbers only."""
    return torch.nn.Sequential(torch.nn.Linear(shape[0], classes))


def test_an_own_model_is_tried_with_ids() -> None:
    assert built(f"{__name__}:bag")(torch.tensor([[11] * 6])).shape == (1, 3)
    build = partial(models.build, shape=SHAPE, classes=3)
    with pytest.raises(InputError, match="does not take 3 inputs of 6; it raised"):
        model_facts.facts_of(build, f"{__name__}:narrow", SHAPE, kinds.TOKENS, 3)


# Classifiers of transformers.


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    transformers = pytest.importorskip("transformers")
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    config = transformers.BertConfig(vocab_size=20, max_position_embeddings=10, num_labels=3, **sizes)
    torch.manual_seed(5)
    transformers.BertForSequenceClassification(config).save_pretrained(tmp_path / "bert")
    return tmp_path / "bert"


def test_a_folder_is_built_and_starts_from_its_weights(folder: Path) -> None:
    from safetensors.torch import load_file

    name = f"transformers:{folder}"
    file = transformers.weights([name, "fasttext"])[name]
    weights = {name: pretrained.read(Path(file))}
    model = models.build(name, SHAPE, 3, weights).eval()
    saved = load_file(folder / "model.safetensors")
    assert all(torch.equal(model.state_dict()[f"model.{key}"], each) for key, each in saved.items())
    given = torch.tensor([[3, 4, 5, 0, 0, 0], [3, 4, 5, 0, 0, 0]])
    assert torch.equal(*model(given))
    facts = model_facts.look(models.build(name, SHAPE, 3), SHAPE, kinds.TOKENS)
    assert facts.head is not None
    assert (facts.head.name, facts.lacks("biased")) == ("model.classifier", "")
    assert models.libraries([name]).keys() == {"transformers", name}
    with pytest.raises(InputError, match="of transformers, in which Opacus"):
        privacy.check_possible([name], lambda each: models.build(each, SHAPE, 3), SHAPE, kinds.TOKENS, Compute("cpu"))


def test_other_classes_get_a_drawn_classifier(folder: Path) -> None:
    name = f"transformers:{folder}"
    weights = {name: pretrained.read(folder / "model.safetensors")}
    assert models.build(name, SHAPE, 5, weights)(torch.zeros(1, 6, dtype=torch.int64)).shape == (1, 5)


def spoilt(**changes: Any) -> Any:
    def spoil(folder: Path) -> None:
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps({**config, **changes}))

    return spoil


def pickled(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")


@pytest.mark.parametrize(
    ("spoil", "shape", "words"),
    [
        (lambda folder: (folder / "config.json").unlink(), SHAPE, "has no config.json"),
        (lambda folder: (folder / "config.json").write_text("{"), SHAPE, "is not JSON"),
        (lambda folder: (folder / "config.json").write_text("{}"), SHAPE, "has no 'model_type'"),
        (spoilt(auto_map={"AutoModel": "mine.Model"}), SHAPE, "its own code"),
        (spoilt(model_type="mine"), SHAPE, "cannot be built for texts of 6 tokens"),
        (spoilt(hidden_size=7), SHAPE, "cannot be built for texts of 6 tokens"),
        (pickled, SHAPE, "pytorch_model.bin, a pickle"),
        (lambda folder: None, TokenShape((6,), 21), "embeds 20 tokens, and the vocabulary has 21"),
        (lambda folder: None, TokenShape((11,), 20), "takes texts of at most 10 tokens"),
        (lambda folder: None, (1, 28, 28), "takes tokens; these are images"),
    ],
)
def test_folders_that_cannot_be_used(spoil: Any, shape: Any, words: str, folder: Path) -> None:
    spoil(folder)
    name = f"transformers:{folder}"
    with pytest.raises(InputError, match=words):
        models.find(name)
        transformers.weights([name])
        models.build(name, shape, 3)
