import numpy as np
import torch
from images import GREY, LABELS, RGB, draw
from input_errors import input_error

from ktpfl_pipeline.data.sources import Reading, load, load_public


def save(path, **arrays):
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez(path, **arrays)


def test_images_in_a_folder_per_client_and_class(tmp_path):
    draw(tmp_path / "ours/north/cat/1.png", RGB[0])
    draw(tmp_path / "ours/north/cat/2.png", RGB[1])
    draw(tmp_path / "ours/east/dog/1.png", RGB[2])
    draw(tmp_path / "ours/east/ant/1.png", GREY[3])
    draw(tmp_path / "ours/public/7.png", GREY[0])
    draw(tmp_path / "ours/public/more/8.png", RGB[1])
    draw(tmp_path / "ours/.hidden/ant/1.png", RGB[1])
    samples = load("clients:ours", tmp_path)
    assert samples.names == ("east", "north")
    assert samples.owners.tolist() == [0, 0, 1, 1]
    assert samples.labels.tolist() == [0, 2, 1, 1]  # ant, dog, cat, cat
    assert np.array_equal(samples.inputs[[3, 1]].permute(0, 2, 3, 1).numpy(), RGB[[1, 2]])
    assert samples.test is None
    assert load_public("included", "clients:ours", tmp_path).shape == (2, 3, 6, 5)
    assert torch.equal(load_public("clients:ours", "digits", tmp_path), samples.inputs)


def test_photographs_of_any_size_are_brought_to_one_as_they_are_read(tmp_path):
    tall, wide = np.full((300, 200, 3), 90, np.uint8), np.full((40, 700, 3), 30, np.uint8)
    draw(tmp_path / "ours/a/cat/1.jpg", tall)
    draw(tmp_path / "ours/b/cat/1.png", wide)
    samples = load("clients:ours", tmp_path, reading=Reading((32, 48)))
    assert samples.inputs.shape == (2, 3, 32, 48)
    assert [int(image.float().mean().round()) for image in samples.inputs] == [90, 30]
    assert load("folder:ours/a", tmp_path, reading=Reading((8, 8))).shape == (3, 8, 8)
    with input_error("700 x 40 pixels", "give the experiment's image a size"):
        load("clients:ours", tmp_path)


def test_shrinking_averages_and_a_size_that_fits_changes_nothing(tmp_path):
    stripes = np.tile(np.array([0, 255], np.uint8), (64, 32))
    draw(tmp_path / "ours/a/1.png", stripes)
    assert load("folder:ours", tmp_path, reading=Reading((16, 16))).inputs.float().std() < 30
    assert np.array_equal(load("folder:ours", tmp_path, reading=Reading((64, 64))).inputs[0, 0].numpy(), stripes)


def test_arrays_of_each_client(tmp_path):
    for n, name in enumerate(("b", "a")):
        save(tmp_path / f"ours/{name}/data.npz", features=np.full((4, 3), n), labels=LABELS)
    save(tmp_path / "ours/public.npz", features=np.zeros((9, 3)))
    with input_error("is int64 and must be float16"):
        load("clients:ours", tmp_path)
    for n, name in enumerate(("b", "a")):
        save(tmp_path / f"ours/{name}/data.npz", features=np.full((4, 3), n / 2), labels=LABELS)
    samples = load("clients:ours", tmp_path)
    assert samples.names == ("a", "b")
    assert torch.equal(samples.inputs[:, 0], torch.tensor([0.5] * 4 + [0.0] * 4))
    assert samples.test is None
    assert load_public("included", "clients:ours", tmp_path).shape == (9, 3)
    assert torch.equal(load_public("clients:ours", "digits", tmp_path), samples.inputs)


def test_features_of_clients_and_of_public_samples_have_the_same_names_in_the_same_order(tmp_path):
    values, names = np.arange(12.0).reshape(4, 3), np.array(["age", "bmi", "sex"])
    for client, columns in (("a", names), ("b", names)):
        save(tmp_path / f"ours/{client}/data.npz", features=values, labels=LABELS, columns=columns)
    save(tmp_path / "ours/public.npz", features=values, columns=names[::-1])
    private = load("clients:ours", tmp_path)
    assert private.fill is None
    assert private.columns == ("age", "bmi", "sex")
    for source in ("included", "npz:ours/public.npz"):
        with input_error(
            "public.npz has 'sex' as column 0 (from 0)", "and the training data has 'age': give both", "--like"
        ):
            load_public(source, "clients:ours", tmp_path, Reading().of_public(private))
    save(tmp_path / "ours/b/data.npz", features=values, labels=LABELS, columns=names[[0, 2, 1]])
    with input_error("data.npz has 'sex' as column 1 (from 0)", "data.npz has 'bmi': give both the same columns"):
        load("clients:ours", tmp_path)
    save(tmp_path / "ours/b/data.npz", features=values[:, :2], labels=LABELS, columns=names[:2])
    with input_error("has no further column as column 2", "has 'sex'"):
        load("clients:ours", tmp_path)
    save(tmp_path / "ours/b/data.npz", features=values, labels=LABELS)
    assert load("clients:ours", tmp_path).columns is None  # the names of some are unknown


def test_what_a_missing_value_is_and_becomes_at_each_client(tmp_path):
    common = {"features": np.arange(12.0).reshape(4, 3), "labels": LABELS, "columns": np.array(["age", "bmi", "sex"])}
    for client, code in (("a", "-9"), ("b", "-999")):
        save(tmp_path / f"ours/{client}/data.npz", **common, fill=np.arange(3.0), missing=np.array([code]))
    samples = load("clients:ours", tmp_path)
    assert (samples.fill.tolist(), samples.missing) == ([0, 1, 2], ("-9", "-999"))
    save(tmp_path / "ours/b/data.npz", **common, fill=np.arange(3.0) + 1)
    samples = load("clients:ours", tmp_path)
    assert samples.fill[:, 0].tolist() == [0] * 4 + [1] * 4
    assert samples.take(torch.tensor([5, 0])).fill.tolist() == [[1, 2, 3], [0, 1, 2]]
    save(tmp_path / "ours/b/data.npz", **common)
    assert load("clients:ours", tmp_path).fill is None


def test_clients_keep_what_they_are_tested_on(tmp_path):
    for name in ("a", "b"):
        save(tmp_path / f"ours/{name}/train.npz", images=GREY, labels=LABELS)
        save(tmp_path / f"ours/{name}/test.npz", images=GREY[:2], labels=LABELS[:2])
    samples = load("clients:ours", tmp_path)
    assert samples.test.tolist() == ([False] * 4 + [True] * 2) * 2
    assert samples.owners.tolist() == [0] * 6 + [1] * 6
    assert samples.labels.tolist() == [*LABELS, *LABELS[:2]] * 2


def test_a_group_is_one_in_all_files_of_its_client(tmp_path):
    for name in ("a", "b"):
        save(tmp_path / f"ours/{name}/train.npz", images=GREY, labels=LABELS, groups=np.array([7, 5, 7, 5]))
        save(tmp_path / f"ours/{name}/test.npz", images=GREY[:2], labels=LABELS[:2], groups=np.array([9, 7]))
    assert load("clients:ours", tmp_path).groups.tolist() == [1, 0, 1, 0, 2, 1, 4, 3, 4, 3, 5, 4]


def test_clients_keep_the_split_of_their_images(tmp_path):
    for n, client in enumerate(("a", "b")):
        for part, images in (("train", 2), ("val", 1), ("test", 1)):
            for image in range(images):
                draw(tmp_path / f"ours/{client}/{part}/cat/{image}.png", RGB[n])
                draw(tmp_path / f"ours/{client}/{part}/dog/{image}.png", RGB[n])
    samples = load("clients:ours", tmp_path)
    assert samples.class_names == ("cat", "dog")
    assert samples.owners.tolist() == [0] * 8 + [1] * 8
    assert samples.test.tolist() == ([True] * 2 + [False] * 6) * 2  # test, train, val
    draw(tmp_path / "ours/c/cat/1.png", RGB[0])
    with input_error("a has a given split, such as train and test, and ", "c has not"):
        load("clients:ours", tmp_path)


def test_without_public_inputs(tmp_path):
    draw(tmp_path / "ours/a/cat/1.png", GREY[0])
    with input_error("ours has no folder 'public' and no 'public.npz'", "add one of them"):
        load_public("included", "clients:ours", tmp_path)
    (tmp_path / "ours/public").mkdir()
    with input_error("public has no images", "add some"):
        load_public("included", "clients:ours", tmp_path)


def test_a_folder_per_class_is_told_from_clients(tmp_path):
    draw(tmp_path / "pets/cat/1.png", GREY[0])
    with input_error("cat has no subfolders", "or write folder: for clients:", "pets has a folder per class."):
        load("clients:pets", tmp_path)
