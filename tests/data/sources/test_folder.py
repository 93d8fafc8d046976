from pathlib import Path

import numpy as np
import pytest
from images import GREY, RGB, draw
from input_errors import input_error

from ktpfl_pipeline.data.sources import load


def test_folder_numbers_classes_by_name_and_passes_over_other_files(tmp_path):
    draw(tmp_path / "pets/cat/b.png", RGB[0])
    draw(tmp_path / "pets/cat/a.PNG", RGB[1])
    draw(tmp_path / "pets/ant/z.bmp", RGB[2])
    draw(tmp_path / "pets/.hidden/x.png", RGB[3])
    (tmp_path / "pets/cat/notes.txt").write_text("no image")
    (tmp_path / "pets/cat/._a.png").write_text("no image either")
    samples = load("folder:pets", tmp_path)
    assert np.array_equal(samples.inputs.permute(0, 2, 3, 1).numpy(), RGB[[2, 1, 0]])
    assert samples.labels.tolist() == [0, 1, 1]


def test_files_that_are_skipped_are_warned_of_once(tmp_path, caplog):
    for name in ("north/cat/1.png", "north/dog/1.png"):
        draw(tmp_path / "ours" / name, RGB[0])
    load("clients:ours", tmp_path)
    assert caplog.messages == []
    for name in ("cat/2.gif", "dog/2.GIF", "dog/3.heic", "dog/LIST"):
        (tmp_path / "ours/north" / name).write_bytes(b"GIF89a")
    (tmp_path / "ours/north/cat/.hidden").touch()
    for source in ("clients:ours", "folder:ours/north"):
        caplog.clear()
        load(source, tmp_path)
        (told,) = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
        assert "other files are skipped, 1 without an ending, 2 .gif, 1 .heic; images are .bmp," in told


def test_folder_stays_grey_when_all_images_are(tmp_path):
    draw(tmp_path / "a/1.png", GREY[0])
    draw(tmp_path / "b/1.png", GREY[1], "LA")
    samples = load(f"folder:{tmp_path}", Path("elsewhere"))
    assert np.array_equal(samples.inputs[:, 0].numpy(), GREY[:2])
    draw(tmp_path / "b/2.png", RGB[0], "RGBA")
    samples = load(f"folder:{tmp_path}", Path("elsewhere"))
    assert np.array_equal(samples.inputs[0].numpy(), np.stack([GREY[0]] * 3))
    assert np.array_equal(samples.inputs[2].permute(1, 2, 0).numpy(), RGB[0])


def no_subfolder(path: Path):
    draw(path / "1.png", GREY[0])


def empty_class(path: Path):
    draw(path / "a/1.png", GREY[0])
    (path / "b").mkdir()


def other_size(path: Path):
    draw(path / "a/1.png", GREY[0])
    draw(path / "b/2.png", GREY[0].T.copy())


def clients_images(path: Path):
    for client in ("k0", "k1"):
        for label in ("cat", "dog"):
            draw(path / client / label / "1.png", GREY[0])


def clients_arrays(path: Path):
    (path / "k0").mkdir(parents=True)
    np.savez(path / "k0/data.npz", images=GREY, labels=[0, 1, 0, 1])


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (no_subfolder, ("has no subfolders", "subfolder of its own")),
        (empty_class, ("b has no images", ".jpg", "add some or remove it")),
        (
            clients_images,
            ("bad has 2 subfolders, and each has subfolders named cat and dog", "Write clients: for folder:"),
        ),
        (clients_arrays, ("k0 has no images", "or write clients: for")),
        (
            other_size,
            ("b/2.png has 6 x 5 pixels and 1.png has 5 x 6", "give the experiment's image a size", "or resize them"),
        ),
    ],
)
def test_unusable_folders_are_input_errors(tmp_path, make, words):
    make(tmp_path / "bad")
    with input_error(*words) as caught:
        load("folder:bad", tmp_path)
    assert ("clients:" in str(caught.value)) == make.__name__.startswith("clients")


def test_parts_of_a_split_are_not_clients(tmp_path):
    for part in ("train", "val", "test"):
        draw(tmp_path / "xray" / part / "a/1.png", GREY[0])
        draw(tmp_path / "xray" / part / "b/1.png", GREY[1])
    with input_error("test, train, val, which are parts of a split, not clients", "write folder: for clients:"):
        load("clients:xray", tmp_path)


def test_a_link_to_a_folder_above_it_is_refused(tmp_path):
    draw(tmp_path / "pets/cat/1.png", GREY[0])
    (tmp_path / "pets/cat/loop").symlink_to(tmp_path / "pets/cat")
    with input_error("loop is a symbolic link to a folder above it"):
        load("folder:pets", tmp_path)
