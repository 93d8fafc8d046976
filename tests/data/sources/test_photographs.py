"""Image files as people have them: on their side, below a class, with a split of their own, deep or broken."""

import struct
import zlib

import numpy as np
import pytest
import torch
from PIL import Image

from ktpfl_pipeline.core.errors import InputError
from ktpfl_pipeline.core.warnings import collected
from ktpfl_pipeline.data import partition, sources
from ktpfl_pipeline.data.sources import Reading
from ktpfl_pipeline.data.sources.files import IMAGE_SUFFIXES

ORIENTATION = 0x0112
WIDE = np.arange(6, dtype=np.uint8).reshape(2, 3) * 40
"""Gray pixels, 2 high and 3 wide, no two alike."""


def save(file, pixels=WIDE, orientation=None):
    file.parent.mkdir(parents=True, exist_ok=True)
    exif = Image.Exif()
    if orientation:
        exif[ORIENTATION] = orientation
    Image.fromarray(pixels).save(file, exif=exif)


@pytest.mark.parametrize(
    ("orientation", "seen"),
    [(1, WIDE), (3, WIDE[::-1, ::-1]), (6, np.rot90(WIDE, -1)), (8, np.rot90(WIDE, 1)), (2, WIDE[:, ::-1])],
)
def test_photographs_are_turned_upright(tmp_path, orientation, seen):
    """The right values are those of the EXIF standard: 6 is a quarter turn clockwise, 8 one counterclockwise."""
    for name in ("a/1.png", "b/1.png"):
        save(tmp_path / "shots" / name, orientation=orientation)
    images = sources.load("folder:shots", tmp_path).inputs
    assert torch.equal(images[0, 0], torch.from_numpy(seen.copy()))


def test_upright_before_it_is_brought_to_a_size(tmp_path):
    for name in ("a/1.png", "b/1.png"):
        save(tmp_path / "shots" / name, orientation=6)
    images = sources.load("folder:shots", tmp_path, reading=Reading((3, 2))).inputs
    assert torch.equal(images[0, 0], torch.from_numpy(np.rot90(WIDE, -1).copy()))


def test_upright_by_the_orientation_that_xmp_has(tmp_path):
    """Some programs write no EXIF. Without a size, the turned image keeps its own."""
    for label in ("a", "b"):
        (tmp_path / "shots" / label).mkdir(parents=True)
        Image.fromarray(WIDE).save(
            tmp_path / "shots" / label / "1.jpg", xmp=b'<rdf tiff:Orientation="6"/>', quality=100
        )
    assert sources.load("folder:shots", tmp_path).inputs.shape == (2, 1, 3, 2)


def test_images_below_a_class_are_of_that_class(tmp_path):
    for name in ("cat/1.png", "cat/monday/2.png", "cat/monday/am/3.png", "dog/4.png", "dog/tuesday/5.png"):
        save(tmp_path / "pets" / name)
    samples = sources.load("folder:pets", tmp_path)
    assert samples.labels.tolist() == [0, 0, 0, 1, 1]
    assert samples.class_names == ("cat", "dog")


@pytest.mark.parametrize(
    ("folders", "tested"),
    [(("train", "test"), "test"), (("train", "val", "test"), "test"), (("Training", "Validation"), "Validation")],
)
def test_a_given_split_is_kept(tmp_path, folders, tested):
    for place in folders:
        for label in ("cat", "dog"):
            for number in range(12):
                save(tmp_path / "pets" / place / label / f"{number}.png")
    samples = sources.load("folder:pets", tmp_path)
    assert samples.class_names == ("cat", "dog")
    assert len(samples) == 24 * len(folders)
    assert samples.test is not None and int(samples.test.sum()) == 24
    shared = partition.partition(samples.labels, 2, "iid", seed=0, test=samples.test)
    for own in shared.values():
        assert samples.test[own.test].all()
        assert not samples.test[torch.cat([own.train, own.validation])].any()
    assert sum(len(own.test) for own in shared.values()) == 24


def test_classes_that_are_called_train_and_test_are_classes(tmp_path):
    for name in ("train/1.png", "test/1.png"):
        save(tmp_path / "signs" / name)
    samples = sources.load("folder:signs", tmp_path)
    assert samples.class_names == ("test", "train")
    assert samples.test is None


def test_a_split_that_leaves_a_client_without_test_samples_is_named():
    labels = torch.tensor([0, 1] * 10)
    test = torch.arange(20) == 0
    with pytest.raises(InputError, match=r"split of its own, by which client \d has .* 0 to test on"):
        partition.partition(labels, 2, "iid", seed=0, test=test)


class TestUnreadable:
    @pytest.fixture
    def folder(self, tmp_path):
        for label in ("a", "b"):
            for number in range(3):
                save(tmp_path / "shots" / label / f"{number}.png")
        (tmp_path / "shots/a/1.png").write_bytes(b"no image")
        (tmp_path / "shots/b/2.png").write_bytes((tmp_path / "shots/b/0.png").read_bytes()[:40])
        return tmp_path

    def test_all_are_named_in_one_message(self, folder):
        with pytest.raises(InputError) as error:
            sources.load("folder:shots", folder)
        assert "2 of the 6 images" in str(error.value)
        assert all(name in str(error.value) for name in ("a/1.png", "b/2.png", "image.unreadable"))

    def test_they_are_skipped_and_counted_on_request(self, folder, caplog):
        samples = sources.load("folder:shots", folder, reading=Reading(skip=True))
        assert samples.labels.tolist() == [0, 0, 1, 1]
        assert len(samples.inputs) == 4
        assert "of 6 images, which cannot be read: " in caplog.text


def png(color: int, channels: int) -> bytes:
    """Return a PNG of 2 x 2 pixels with 16 bits per channel, which Pillow does not write in color."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = 2 * (b"\0" + np.full((2, channels), 4095, ">u2").tobytes())
    head = chunk(b"IHDR", struct.pack(">IIBBBBB", 2, 2, 16, color, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + head + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def tiff() -> bytes:
    """Return a TIFF of 2 x 2 pixels in RGB with 16 bits per channel."""
    tags = [(256, 2), (257, 2), (258, 122), (259, 1), (262, 2), (273, 128), (277, 3), (278, 2), (279, 24)]
    entries = [struct.pack("<HHII", tag, 3, 3 if tag == 258 else 1, value) for tag, value in tags]
    ifd = struct.pack("<H", len(tags)) + b"".join(entries) + bytes(4)
    return b"II*\0" + struct.pack("<I", 8) + ifd + struct.pack("<3H", 16, 16, 16) + np.full(12, 4095, "<u2").tobytes()


class TestDeep:
    DEEP = np.array([[0, 1000], [2000, 4095]], dtype=np.uint16)

    @pytest.mark.parametrize(
        ("name", "content"),
        [
            ("1.png", png(2, 3)),
            ("1.png", png(4, 2)),
            ("1.png", png(6, 4)),
            ("1.tif", tiff()),
            ("1.ppm", b"P6 2 2 65535\n" + bytes(24)),
        ],
        ids=["RGB", "gray with alpha", "RGB with alpha", "TIFF", "PPM"],
    )
    def test_color_of_more_than_8_bits_is_refused(self, tmp_path, name, content):
        for label in ("a", "b"):
            (tmp_path / "scans" / label).mkdir(parents=True)
            (tmp_path / "scans" / label / name).write_bytes(content)
        with pytest.raises(InputError, match=r"16 bits per channel .* only in gray images .* save it with 8 bits"):
            sources.load("folder:scans", tmp_path, reading=Reading(window=(0, 4095)))

    def test_a_window_is_in_the_values_of_a_pgm_file(self, tmp_path):
        for label in ("a", "b"):
            (tmp_path / "scans" / label).mkdir(parents=True)
            (tmp_path / "scans" / label / "1.pgm").write_bytes(b"P5 2 2 4095\n" + self.DEEP.astype(">u2").tobytes())
        images = sources.load("folder:scans", tmp_path, reading=Reading(window=(1000, 4095))).inputs
        assert images[0, 0].tolist() == [[0, 0], [82, 255]]

    def test_a_window_sets_black_and_white(self, tmp_path):
        for name in ("a/1.png", "b/1.png"):
            save(tmp_path / "scans" / name, self.DEEP)
        images = sources.load("folder:scans", tmp_path, reading=Reading(window=(1000, 4095))).inputs
        assert images[0, 0].tolist() == [[0, 0], [82, 255]]  # (2000 - 1000) · 255 / 3095 = 82.4

    def test_a_negative_is_turned_into_a_positive(self, tmp_path):
        for label in ("a", "b"):
            (tmp_path / "scans" / label).mkdir(parents=True)
            Image.fromarray(self.DEEP).save(tmp_path / "scans" / label / "1.tif", tiffinfo={262: 0})
        images = sources.load("folder:scans", tmp_path, reading=Reading(window=(1000, 4095))).inputs
        assert images[0, 0].tolist() == [[255, 255], [173, 0]]

    def test_a_pixel_that_is_no_number_is_refused(self, tmp_path):
        values = np.linspace(0, 1, 16, dtype=np.float32).reshape(4, 4)
        values[1, 2] = np.nan
        for name in ("a/1.tif", "b/1.tif"):
            save(tmp_path / "scans" / name, np.linspace(0, 1, 16, dtype=np.float32).reshape(4, 4))
        save(tmp_path / "scans/b/2.tif", values)
        with pytest.raises(InputError, match=r"b/2\.tif cannot be read \(1 pixel of 16 is NaN\): replace or remove it"):
            sources.load("folder:scans", tmp_path, reading=Reading(window=(0, 1)))
        assert len(sources.load("folder:scans", tmp_path, reading=Reading(window=(0, 1), skip=True))) == 2

    def test_without_one_the_message_says_how(self, tmp_path):
        for name in ("a/1.png", "b/1.png"):
            save(tmp_path / "scans" / name, self.DEEP)
        with pytest.raises(InputError, match=r"more than 8 bits .* image: \{window: \[0, 4095\]\}"):
            sources.load("folder:scans", tmp_path)


@pytest.mark.parametrize("suffix", IMAGE_SUFFIXES)
def test_a_file_of_every_promised_suffix_is_read(tmp_path, suffix):
    rgb = np.repeat(WIDE[..., None], 3, axis=2)
    for name in ("a/1", "b/1"):
        save(tmp_path / "shots" / f"{name}{suffix}", WIDE if suffix == ".pgm" else rgb)
    with collected() as found:
        images = sources.load("folder:shots", tmp_path).inputs
    near = 12 if suffix in (".jpg", ".jpeg", ".webp") else 0
    assert images.shape == (2, 1 if suffix == ".pgm" else 3, 2, 3)
    assert (images[0, 0].int() - torch.from_numpy(WIDE).int()).abs().max() <= near
    assert not found


def transparent(file, mode, **options):
    """Save two pixels: an opaque red one, and a black one that is transparent."""
    image = Image.new("RGBA", (2, 1), (255, 0, 0, 255))
    image.putpixel((1, 0), (0, 0, 0, 0))
    file.parent.mkdir(parents=True, exist_ok=True)
    image.convert(mode).save(file, **options)


@pytest.mark.parametrize(
    ("name", "mode", "options"),
    [
        ("1.png", "RGBA", {}),
        ("1.png", "LA", {}),
        ("1.webp", "RGBA", {"lossless": True}),
        ("1.tif", "RGBA", {}),
        ("1.png", "RGB", {"transparency": (0, 0, 0)}),  # one color is transparent, without an alpha channel
        ("1.png", "P", {"transparency": 0}),
    ],
)
def test_transparent_pixels_are_laid_over_white_and_counted(tmp_path, name, mode, options):
    for label in "ab":
        transparent(tmp_path / "cut" / label / name, mode, **options)
    save(tmp_path / "cut/b/2.png", np.zeros((1, 2), dtype=np.uint8))
    with collected() as found:
        images = sources.load("folder:cut", tmp_path).inputs
    if mode != "P":  # which color has number 0 depends on the palette
        assert images[0, :, 0, 1].unique().tolist() == [255]
        assert images[0, :, 0, 0].tolist() in ([255, 0, 0], [76])
    assert (images[0] == 255).all(dim=0).any()
    assert [each.kind for each in found] == ["Transparent images"]
    assert "2 of 3 images have transparent pixels, which are laid over white, such as" in next(iter(found)).text


def test_an_alpha_channel_of_opaque_pixels_is_no_warning(tmp_path):
    for label in "ab":
        (tmp_path / "flat" / label).mkdir(parents=True)
        Image.fromarray(np.repeat(WIDE[..., None], 3, 2)).convert("RGBA").save(tmp_path / "flat" / label / "1.png")
    with collected() as found:
        images = sources.load("folder:flat", tmp_path).inputs
    assert torch.equal(images[0, 0], torch.from_numpy(WIDE))
    assert not found


@pytest.mark.parametrize("name", ["1.tif", "1.tiff", "1.png", "1.webp"])
def test_further_pages_and_frames_are_counted(tmp_path, name):
    first = Image.fromarray(WIDE)
    for label in "ab":
        (tmp_path / "stacks" / label).mkdir(parents=True)
        file = tmp_path / "stacks" / label / name
        first.save(file, save_all=True, append_images=[Image.fromarray(255 - WIDE)], lossless=True)
    save(tmp_path / "stacks/b/2.png")
    with collected() as found:
        images = sources.load("folder:stacks", tmp_path).inputs
    assert torch.equal(images[0, 0], torch.from_numpy(WIDE))
    (told,) = (each.text for each in found if each.kind == "Further pages")
    assert f"2 of 3 images have several pages or frames, such as {tmp_path / 'stacks/a' / name}, and only the" in told


def test_a_smaller_copy_of_a_page_is_no_page(tmp_path):
    for label in "ab":
        (tmp_path / "scans" / label).mkdir(parents=True)
        copy = Image.fromarray(WIDE[:1, :1])
        copy.encoderinfo = {"tiffinfo": {254: 1}}
        Image.fromarray(WIDE).save(tmp_path / "scans" / label / "1.tif", save_all=True, append_images=[copy])
    with collected() as found:
        sources.load("folder:scans", tmp_path)
    assert not found


def test_images_and_arrays_outside_of_the_folders_that_are_read_are_counted(tmp_path):
    for name in ("north/cat/1.png", "north/dog/1.png", "north/loose.png", "above.jpg", "public/2.png"):
        save(tmp_path / "ours" / name)
    (tmp_path / "ours/README.md").write_text("about these images")
    with collected() as found:
        sources.load("clients:ours", tmp_path)
    (told,) = (each.text for each in found)
    assert "1 .jpg outside of the folders that are read, 1 .png outside of the folders that are read; images" in told


def test_a_third_file_of_arrays_of_a_client_is_counted(tmp_path):
    arrays = {"images": np.zeros((2, 3, 3), np.uint8), "labels": [0, 1]}
    (tmp_path / "ours/north").mkdir(parents=True)
    for part in ("train", "test", "val"):
        np.savez(tmp_path / f"ours/north/{part}.npz", **arrays)
    np.savez(tmp_path / "ours/public.npz", images=arrays["images"])
    with collected() as found:
        sources.load("clients:ours", tmp_path)
    assert ["other files are skipped, 1 .npz;" in each.text for each in found] == [True]
