"""The models that clients keep: what `ktpfl export` and real clients write, MLflow serves and `ktpfl predict` uses."""

import json
import os
import pickle
import shutil
import subprocess
import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from experiment import EXPERIMENT
from full_disk import full_disk
from PIL import Image

from ktpfl_pipeline import models
from ktpfl_pipeline.analysis import kept
from ktpfl_pipeline.analysis.inputs import facts
from ktpfl_pipeline.config import parsing
from ktpfl_pipeline.core import engine
from ktpfl_pipeline.core.dataset import LabeledDataset
from ktpfl_pipeline.core.errors import InputError
from ktpfl_pipeline.core.weights import params_of
from ktpfl_pipeline.data.converters import tables
from ktpfl_pipeline.data.settings import Text
from ktpfl_pipeline.data.sources import Reading, load
from ktpfl_pipeline.data.standardization import FrequentTokens, Standardization
from ktpfl_pipeline.methods import create
from ktpfl_pipeline.runs.assembly import assemble
from ktpfl_pipeline.runs.identity import Job
from ktpfl_pipeline.runs.preparation import prepare
from ktpfl_pipeline.runs.run import keep_models

PATIENTS = "age,smoker,diagnosis\n" + "".join(f"{30 + n},{'yes' if n % 3 else 'no'},{n % 2}\n" for n in range(12))
TICKETS = "text,label\n" + "".join(f"the {w} is broken,{n % 2}\n" for n, w in enumerate(["screen", "mouse"] * 4))


def written(folder: Path, samples: LabeledDataset, architecture: str, scale: Any = None, **reading: Any) -> kept.Kept:
    """Write an untrained model of an architecture for such samples."""
    about = facts(samples, samples.classes, scale, Reading(**reading))
    torch.manual_seed(0)
    weights = params_of(models.build(architecture, samples.shape, samples.classes))
    return kept.save(folder, weights, {**about, "architecture": architecture}, folder.parent)


def table(folder: Path) -> kept.Kept:
    (folder / "patients.csv").write_text(PATIENTS)
    arrays, _ = tables.convert(folder / "patients.csv", "diagnosis")
    np.savez(folder / "patients.npz", **arrays)
    samples = load("npz:patients.npz", folder)
    written(folder / "coded", replace(samples, missing=("-999",)), "mlp")
    return written(folder / "rows", samples, "mlp", Standardization.of(samples.inputs, [torch.arange(12)]))


def texts(folder: Path) -> kept.Kept:
    (folder / "tickets.csv").write_text(TICKETS)
    samples = load("text:tickets.csv", folder)
    known = samples.vocabulary
    assert known is not None and known.frequent is not None
    scale = FrequentTokens.of(samples.inputs, [torch.arange(8)], known.size, known.frequent)
    return written(folder / "texts", samples, "text_cnn", scale)


def images(folder: Path) -> kept.Kept:
    pixels = torch.arange(2 * 3 * 64).remainder(256).to(torch.uint8).view(2, 3, 8, 8)
    samples = LabeledDataset(pixels, torch.arange(2), class_names=("cat", "dog"))
    for place, name in enumerate(("one.png", "two.jpg")):
        Image.fromarray(pixels[place].permute(1, 2, 0).numpy()).resize((20, 10)).save(folder / name)
    return written(folder / "images", samples, "cnn_bn", size=(8, 8))


def series(folder: Path) -> kept.Kept:
    values = np.random.default_rng(0).normal([[[900.0], [0.001]]], [[[40.0], [0.0002]]], (6, 2, 16)).astype("float32")
    np.savetxt(folder / "series.csv", values[0].T, delimiter=",", header="pressure,flow", comments="")
    np.save(folder / "series.npy", values[:3])
    samples = LabeledDataset(torch.from_numpy(values), torch.arange(6) % 3)
    return written(folder / "arrays", samples, "cnn1d", Standardization.of(samples.inputs, [torch.arange(6)]))


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("kept")
    for make in (table, texts, images, series):
        make(folder)
    return folder


def test_rows_are_encoded_as_in_training_and_missing_cells_are_filled(place: Path) -> None:
    model = kept.load(place / "rows")
    (place / "new.csv").write_text("smoker;other;age\nyes;1;33\n?;2;\n")
    inputs = model.inputs.of_file(place / "new.csv")
    assert inputs.tolist() == [[33.0, 0.0, 1.0], [35.5, 0.0, 1.0]]  # the median, the most frequent category
    request = model.inputs.of_request({"age": [33, float("nan")], "smoker": ["yes", None]})
    assert torch.equal(inputs, request)
    assert torch.equal(inputs, model.inputs.of_request({"age": ["33", pd.NA], "smoker": ["yes", ""]}))
    (place / "coded.csv").write_text("smoker,age\nyes,33\n?,-999.0\n")
    assert torch.equal(inputs, model.inputs.of_file(place / "coded.csv", missing=["-999"]))
    assert torch.equal(inputs, kept.load(place / "coded").inputs.of_file(place / "coded.csv")), "as training had it"
    coded = kept.load(place / "coded").inputs.of_request({"age": [33.0, -999], "smoker": ["yes", None]})
    assert torch.equal(inputs, coded)
    from_npz = model.inputs.of_file(place / "patients.npz")
    assert torch.equal(from_npz, load("npz:patients.npz", place).inputs)
    np.savez(place / "turned.npz", features=from_npz.flip(1), columns=["smoker=yes", "smoker=no", "age"])
    with pytest.raises(InputError, match=r"turned\.npz has 'smoker=yes' as column 0 .* the training data has 'age'"):
        model.inputs.of_file(place / "turned.npz")
    assert model.class_names == ["0", "1"]


def test_a_text_is_tokenized_as_in_training(place: Path) -> None:
    model, samples = kept.load(place / "texts"), load("text:tickets.csv", place)
    assert torch.equal(model.inputs.of_file(place / "tickets.csv"), samples.inputs)
    assert torch.equal(model.inputs.of_texts(["The SCREEN is broken"]), samples.inputs[:1])
    with pytest.raises(InputError, match="the input has no token in text 2"):
        model.inputs.of_texts(["The screen", " "])
    with pytest.raises(InputError, match="The request has the text nan, which is not a string"):
        model.inputs.of_request({"text": ["The screen", float("nan")]})


def test_an_image_gets_the_size_and_the_channels_of_training(place: Path) -> None:
    model = kept.load(place / "images")
    Image.fromarray(np.zeros((5, 9), dtype="uint8")).save(place / "gray.png")
    assert model.inputs.of_file(place / "gray.png").shape == (1, 3, 8, 8)
    assert model.inputs.of_file(place).shape == (3, 3, 8, 8)  # the folder's images
    assert [file.name for file in model.inputs.files_of(place)] == ["gray.png", "one.png", "two.jpg"]
    sent = model.inputs.of_request({"image": [(place / "one.png").read_bytes()]})
    assert torch.equal(sent, model.inputs.of_file(place / "one.png"))


def test_a_series_is_one_file_or_one_of_an_array(place: Path) -> None:
    model = kept.load(place / "arrays")
    np.testing.assert_allclose(model.inputs.of_file(place / "series.csv"), np.load(place / "series.npy")[:1], rtol=1e-6)
    expected = model.predict(model.inputs.of_file(place / "series.npy"))
    assert expected.shape == (3, 3)
    np.save(place / "other.npy", np.load(place / "series.npy").astype(">f4"))
    assert torch.equal(model.predict(model.inputs.of_file(place / "other.npy")), expected)


@pytest.mark.parametrize(
    ("name", "file", "content", "words"),
    [
        ("rows", "a.csv", "age\n1\n", r"a\.csv has no column smoker: add them.* columns age, smoker"),
        ("rows", "a.csv", "age,smoker\n1,maybe\n", r"'smoker' of .* has 'maybe' in row 2: its values are"),
        ("rows", "a.csv", "age,smoker\nold,yes\n", "'age' of .* has texts, and numbers are needed"),
        ("rows", "a.csv", "age,smoker\n", "has no row below the names"),
        ("rows", "one.png", None, "one.png has images, and the model takes rows of a table"),
        ("rows", "series.npy", None, "cannot be used: the model takes rows of a table"),
        ("texts", "a.csv", "words\nhello\n", "has no column 'text', only words"),
        ("texts", "a.csv", "text,id\n,1\n", "has an empty text"),
        ("images", "a.csv", "age\n1\n", "cannot be used: the model takes image files of shape 3 × 8 × 8"),
        ("images", "a.png", "no image", "a.png cannot be read"),
        ("images", "missing.png", None, "There is no file .*missing.png: correct the path"),
        ("arrays", "a.csv", "1,2\n1,2\n", "begins with 1, a number: put a line with the names"),
        ("arrays", "a.csv", "x,y\n1,2\n", r"shape \(2, 1\), but the model takes features of shape \(2, 16\)"),
        ("arrays", "a.csv", "x,y\n" + "1,\n" * 16, r"Input 0 \(from 0\) has a value that is not finite"),
        ("arrays", "a.npy", "no array", "a.npy is not an array of numbers"),
        ("arrays", "patients.npz", None, r"shape \(3,\), but the model takes"),
    ],
)
def test_what_a_model_cannot_take(place: Path, name: str, file: str, content: str | None, words: str) -> None:
    if content is not None:
        (place / file).write_text(content)
    model = kept.load(place / name)
    with pytest.raises(InputError, match=words):
        model.predict(model.inputs.of_file(place / file))
    if content is not None:
        (place / file).unlink()


SERVE = """
import json, sys
import mlflow, pandas as pd
from pathlib import Path

place, found = Path(sys.argv[1]), {}
for name, column in (("rows", None), ("texts", "text"), ("images", "image"), ("arrays", None)):
    model = mlflow.pyfunc.load_model(str(place / name))
    if name == "rows":
        given = pd.DataFrame({"age": [33.0, None], "smoker": ["yes", "no"]})
    elif name == "arrays":
        import numpy as np
        given = np.load(place / "series.npy")
    else:
        given = pd.DataFrame({column: ["The screen"] if name == "texts" else [(place / "one.png").read_bytes()]})
    found[name] = model.predict(given)
source = Path(sys.modules["ktpfl_pipeline"].__file__)
assert source.is_relative_to(place), source
trains = [name for name in sys.modules if name.startswith("ktpfl_pipeline.") and
          set(name.split(".")) & {"methods", "engine", "sgd", "federation", "executors", "runs", "pipelines"}]
assert not trains, trains
print(json.dumps(found))
"""


def test_mlflow_serves_them_with_their_own_copy_of_the_code_which_does_not_train(place: Path, tmp_path: Path) -> None:
    known = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [sys.executable, "-c", SERVE, str(place)]
    environment = {**known, "MLFLOW_DISABLE_TELEMETRY": "true"}
    ended = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    served = json.loads(ended.stdout.splitlines()[-1])
    given = {
        "rows": kept.load(place / "rows").inputs.of_request({"age": [33.0, None], "smoker": ["yes", "no"]}),
        "texts": kept.load(place / "texts").inputs.of_texts(["The screen"]),
        "images": kept.load(place / "images").inputs.of_file(place / "one.png"),
        "arrays": kept.load(place / "arrays").inputs.of_file(place / "series.npy"),
    }
    for name, inputs in given.items():
        model = kept.load(place / name)
        ours = model.answers(model.predict(inputs))
        assert [row.pop(kept.PREDICTED) for row in served[name]] == [row.pop(kept.PREDICTED) for row in ours]
        for theirs, mine in zip(served[name], ours, strict=True):
            assert theirs == pytest.approx(mine, abs=1e-6)
            assert sum(theirs.values()) == pytest.approx(1.0, abs=1e-6)


def test_no_example_of_a_request_has_a_client_s_values(place: Path) -> None:
    example = json.loads((place / "rows" / kept.EXAMPLE).read_text())
    assert example == {"dataframe_split": {"columns": ["age", "smoker"], "data": [[35.5, "yes"]]}}
    assert set(np.ravel(json.loads((place / "arrays" / kept.EXAMPLE).read_text())["inputs"])) == {0.0}


IMAGES = np.random.default_rng(0).integers(0, 256, (60, 6, 5)).astype("uint8")
TOKENS = np.random.default_rng(0).integers(0, 6, (60, 5)) + 7 * (np.arange(60) % 3)[:, None]
SERIES = np.random.default_rng(0).normal([[[900.0], [0.001]]], [[[40.0], [0.0002]]], (60, 2, 16)).astype("float32")


@pytest.mark.parametrize(
    ("name", "arrays", "image"),
    [
        ("local", {"images": IMAGES}, {"channels": 3, "size": 8}),
        ("local", {"features": SERIES}, None),
        ("fedmrl", {"features": SERIES}, None),
        ("local", {"tokens": TOKENS, "padding": 0}, None),
    ],
    ids=["images", "features", "two models as one", "tokens"],
)
def test_predictions_are_those_of_the_engine(
    tmp_path: Path, name: str, arrays: dict[str, Any], image: dict[str, int] | None
) -> None:
    """From what the source has: images, features far from mean 0 and deviation 1, or ids of tokens."""
    np.savez(tmp_path / "mine.npz", labels=np.arange(60) % 3, **arrays)
    own = {"private": {"source": "npz:mine.npz"}, "image": image, "public": {"source": "open_part", "batch": 5}}
    architecture = "text_cnn" if "tokens" in arrays else "mlp"
    settings = {"clients": 3, "architectures": [architecture], "partition": {"scheme": "dirichlet", "alpha": 5.0}}
    experiment = parsing.parse("mine", {**EXPERIMENT, **own, **settings, "training": {"epochs": 2}})
    data = prepare(experiment, tmp_path)
    fed, method = assemble(experiment, data, 0), create(name)
    with closing(fed.executor):
        result = engine.run(method, fed, engine.Schedule(1))
        theirs = fed.cross_logits(method.personal(result.state, fed.by_id, fed), "test")
        keep_models(tmp_path / "models.pt", Job("mine", name, experiment, data), method, result, fed, "key")
    stored = torch.load(tmp_path / "models.pt", weights_only=True)
    for n, parts in data.partitions[0].items():
        about = {**stored["about"], **stored["clients"][n]}
        served = kept.save(tmp_path / f"client-{n}", stored["models"][n], about, tmp_path)
        inputs = data.private.inputs[parts.test]
        answers = served.predict(inputs)
        np.testing.assert_allclose(answers, theirs[n][:, n].softmax(dim=1), rtol=1e-5)
    assert np.ptp(answers[:, 0]) > 0.01, "the inputs tell"
    if "tokens" in arrays:
        with pytest.raises(InputError, match="the input has the id 99 in row 0, place 4"):
            served.predict([[1, 2, 3, 4, 99]])


def test_clients_whose_tables_were_converted_one_by_one(tmp_path: Path) -> None:
    """Each model takes the columns of the table, and fills a missing number with the median of its client's table."""
    for name, youngest in (("north", 30), ("south", 50)):
        rows = "".join(f"{youngest + n},{'yes' if n % 3 else 'no'},{n % 2}\n" for n in range(41))
        (tmp_path / f"{name}.csv").write_text(f"age,smoker,diagnosis\n{rows}")
        (tmp_path / "hospitals" / name).mkdir(parents=True)
        arrays, _ = tables.convert(tmp_path / f"{name}.csv", "diagnosis")
        np.savez(tmp_path / "hospitals" / name / "data.npz", **arrays)
    own = {"private": {"source": "clients:hospitals"}, "image": None, "public": {"source": "open_part", "batch": 5}}
    settings = {"clients": None, "architectures": ["mlp"], "partition": {"scheme": "natural"}}
    experiment = parsing.parse("mine", {**EXPERIMENT, **own, **settings})
    data = prepare(experiment, tmp_path)
    fed, method = assemble(experiment, data, 0), create("local")
    with closing(fed.executor):
        result = engine.run(method, fed, engine.Schedule(1))
        keep_models(tmp_path / "models.pt", Job("mine", "local", experiment, data), method, result, fed, "key")
    stored = torch.load(tmp_path / "models.pt", weights_only=True)
    (tmp_path / "new.csv").write_text("smoker,age\nyes,\nno,61\n")
    (tmp_path / "odd.csv").write_text("smoker,age\nseldom,40\n")
    for n, median in ((0, 50.0), (1, 70.0)):
        about = {**stored["about"], **stored["clients"][n]}
        model = kept.save(tmp_path / f"client-{n}", stored["models"][n], about, tmp_path)
        assert model.inputs.of_file(tmp_path / "new.csv").tolist() == [[median, 0, 1], [61, 1, 0]]
        assert model.about["scale"] == {name: pytest.approx(each) for name, each in data.seeds[0].scale.plain().items()}
        with pytest.raises(InputError, match=r"column 'smoker' of .*odd.csv has 'seldom' in row 2: its values are"):
            model.inputs.of_file(tmp_path / "odd.csv")


def test_a_classifier_of_transformers_and_its_tokenizer_move_with_the_folder(tmp_path: Path) -> None:
    transformers, tokenizers = pytest.importorskip("transformers"), pytest.importorskip("tokenizers")
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
    transformers.BertConfig(vocab_size=20, max_position_embeddings=10, **sizes).save_pretrained(tmp_path / "bert")
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel({"[UNK]": 0, "[PAD]": 1, "screen": 2, "mouse": 3}, "[UNK]"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    made.save(str(tmp_path / "words.json"))
    (tmp_path / "tickets.csv").write_text(TICKETS)
    reading = Reading(text=Text("words.json"))
    samples = load("text:tickets.csv", tmp_path, None, reading)
    written(tmp_path / "mine", samples, f"transformers:{tmp_path / 'bert'}", text=reading.text)
    shutil.rmtree(tmp_path / "bert")
    (tmp_path / "words.json").unlink()
    model = kept.load((tmp_path / "mine").rename(tmp_path / "elsewhere"))
    assert torch.equal(model.inputs.of_texts(["the screen is broken"]), samples.inputs[:1])
    assert model.predict(samples.inputs).shape == (8, 2)


OWN = "import torch, pathlib\npathlib.Path('ran').touch()\ndef wide(shape, classes):\n    return torch.nn.Sequential(\n"
OWN += "        torch.nn.Flatten(), torch.nn.Linear(shape[0], classes))\n"


def test_code_of_a_user_is_only_run_if_the_user_names_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "kept_nets.py").write_text(OWN)
    samples = LabeledDataset(torch.zeros(4, 3), torch.arange(4) % 2)
    written(tmp_path / "mine", samples, "kept_nets:wide")
    assert (tmp_path / "mine" / kept.CODE / "kept_nets.py").read_text() == OWN  # MLflow needs it
    del sys.modules["kept_nets"]
    (tmp_path / "ran").unlink()
    with pytest.raises(InputError, match=r"made by the code 'kept_nets:wide', .* --own-code kept_nets:wide"):
        kept.load(tmp_path / "mine")
    assert not (tmp_path / "ran").exists()
    assert kept.load(tmp_path / "mine", ["kept_nets:wide"]).predict(torch.zeros(1, 3)).shape == (1, 2)


class Evil:
    def __reduce__(self) -> Any:
        return Path.touch, (Path("ran"),)


@pytest.mark.parametrize("content", [None, b"{", b"{}", pickle.dumps(Evil())])
@pytest.mark.parametrize("name", [kept.ABOUT, kept.WEIGHTS])
def test_a_damaged_folder_runs_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, content: bytes | None
) -> None:
    monkeypatch.chdir(tmp_path)
    written(tmp_path / "mine", LabeledDataset(torch.zeros(4, 3), torch.arange(4) % 2), "mlp")
    (tmp_path / "mine" / name).unlink()
    if content is not None:
        (tmp_path / "mine" / name).write_bytes(content)
    with pytest.raises(InputError, match="has no model that can be used"):
        kept.load(tmp_path / "mine")
    assert not (tmp_path / "ran").exists()


def test_a_full_disk_leaves_no_half_of_a_folder(tmp_path: Path) -> None:
    with full_disk(1000), pytest.raises(InputError, match=r"The model .* could not be written"):
        written(tmp_path / "mine", LabeledDataset(torch.zeros(4, 3), torch.arange(4) % 2), "mlp")
    assert not (tmp_path / "mine").exists()
