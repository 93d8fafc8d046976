"""Hostile image files, which try to run code, fill the memory, hang, or cause a traceback."""

import gzip
import io
import lzma
import os
import pickle
import struct
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

NUMBERS = np.random.default_rng(0)
IMAGES = NUMBERS.integers(0, 256, (6, 8, 8), dtype=np.uint8)
LABELS = np.arange(6) % 2
TRACE = "the-code-ran"
"""The folder that hostile code would make in the current folder."""

Make = Callable[[Path], Any]


class Code:
    """Makes a file when it is unpickled."""

    def __reduce__(self) -> Any:
        return os.mkdir, (TRACE,)


def npz(path: Path, **members: bytes | np.ndarray) -> None:
    """Write a zip whose members are arrays, or the bytes that claim to be one."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(f"{name}.npy", content if isinstance(content, bytes) else npy(content))


def npy(array: np.ndarray, **options: Any) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array, **options)
    return buffer.getvalue()


def header(text: str, version: tuple[int, int] = (1, 0), length: int | None = None) -> bytes:
    """Return an array's header with this text, which may claim another length."""
    size = len(text) if length is None else length
    return b"\x93NUMPY" + bytes(version) + struct.pack("<H" if version == (1, 0) else "<I", size) + text.encode()


def claim(shape: str, descr: str = "'|u1'") -> bytes:
    return header(f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}\n")


def claims(shape: str, labels: bytes | None = None) -> Make:
    return lambda raw: npz(raw / "mine.npz", images=claim(shape), labels=labels or npy(LABELS))


def whole(raw: Path) -> bytes:
    np.savez_compressed(raw / "mine.npz", images=IMAGES, labels=LABELS)
    return (raw / "mine.npz").read_bytes()


def spoilt(spoil: Callable[[bytes], bytes]) -> Make:
    return lambda raw: (raw / "mine.npz").write_bytes(spoil(whole(raw)))


def saved(**arrays: Any) -> Make:
    return lambda raw: np.savez(raw / "mine.npz", **{"images": IMAGES, "labels": LABELS, **arrays})


def zeros_of(gigabytes: int) -> Make:
    """Return a function that writes a file of a few megabytes with this many gigabytes of zeros after decompression."""

    def make(raw: Path) -> None:
        head = claim(f"({gigabytes * 2**10}, 1024, 1024)")
        packer = zlib.compressobj(wbits=-15)
        first = packer.compress(head) + packer.flush(zlib.Z_FULL_FLUSH)
        zeros = packer.compress(bytes(2**24)) + packer.flush(zlib.Z_FULL_FLUSH)  # after it, the same bytes fit again
        with zipfile.ZipFile(raw / "mine.npz", "w") as archive:
            archive.writestr("images.npy", first + zeros * (gigabytes * 2**6) + packer.flush())
            images = archive.getinfo("images.npy")  # the directory, written at the end, says what the bytes are
            images.compress_type, images.file_size = zipfile.ZIP_DEFLATED, len(head) + gigabytes * 2**30
            archive.writestr("labels.npy", npy(np.zeros(gigabytes * 2**10, np.uint8)))

    return make


def lzma_member(raw: Path) -> None:
    with zipfile.ZipFile(raw / "mine.npz", "w", zipfile.ZIP_LZMA) as archive:
        archive.writestr("images.npy", npy(IMAGES))
        archive.writestr("labels.npy", npy(LABELS))
    content = (raw / "mine.npz").read_bytes()
    at = content.index(b"images.npy") + len("images.npy") + 4
    (raw / "mine.npz").write_bytes(content[:at] + bytes(40) + content[at + 40 :])


def chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(width: int, height: int, *others: bytes, depth: int = 8) -> bytes:
    """Return a PNG of a gray image that claims this size but has at most one row of pixels."""
    head = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, 0, 0, 0, 0))
    pixels = chunk(b"IDAT", zlib.compress(bytes(min(width + 1, 2**16))))
    return b"\x89PNG\r\n\x1a\n" + head + b"".join(others) + pixels + chunk(b"IEND", b"")


def in_class(raw: Path, name: str = "1.png", content: bytes | None = None) -> Path:
    """Return the path of a file among the images of a class, and write the file if it has `content`."""
    place = raw / "mine" / "cats"
    place.mkdir(parents=True, exist_ok=True)
    if content is not None:
        (place / name).write_bytes(content)
    return place / name


def drawn(raw: Path, name: str = "0.png", array: np.ndarray = IMAGES[0], **options: Any) -> Path:
    Image.fromarray(array).save(in_class(raw, name), **options)
    return raw / "mine" / "cats" / name


def image(content: bytes, name: str = "1.png") -> Make:
    return lambda raw: in_class(raw, name, content)


def link(target: Callable[[Path], Any], name: str = "1.png") -> Make:
    def make(raw: Path) -> None:
        drawn(raw)
        in_class(raw, name).symlink_to(target(raw))

    return make


def outside(raw: Path) -> Path:
    """Write an image next to the data folder, and return its path."""
    file = raw.resolve().parent / "secret.png"
    Image.fromarray(IMAGES[0]).save(file)
    return file


def linked_class(raw: Path) -> None:
    drawn(raw)
    (raw / "mine" / "dogs").symlink_to(outside(raw).parent)


def sparse(path: Path, size: int) -> None:
    with path.open("wb") as file:
        file.truncate(size)


def cut(path: Path, share: float = 0.5) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * share)])


def idx(array: np.ndarray) -> bytes:
    sizes = b"".join(struct.pack(">I", size) for size in array.shape)
    return bytes([0, 0, 8, array.ndim]) + sizes + array.astype(np.uint8).tobytes()


def idx_parts(place: Path, *parts: str) -> Path:
    """Make a folder with six images and their labels for each part; return it."""
    place.mkdir(parents=True)
    for part in parts:
        (place / f"{part}-images-idx3-ubyte").write_bytes(idx(IMAGES))
        (place / f"{part}-labels-idx1-ubyte").write_bytes(idx(LABELS))
    return place


def mnist(**changed: bytes | Make) -> Make:
    """Return a function that writes MNIST's four files with six images each, in which `changed` replace files."""

    def make(raw: Path) -> None:
        place = idx_parts(raw / "MNIST" / "raw", "train", "t10k")
        for name, content in changed.items():
            file = place / f"{name.replace('_', '-')}-ubyte"
            if callable(content):
                content(file)
            else:
                file.write_bytes(content)

    return make


def letters(raw: Path) -> None:
    """Write EMNIST's letters with a label 0, although the first letter has the label 1."""
    idx_parts(raw / "EMNIST" / "raw", "emnist-letters-train", "emnist-letters-test")


def pipe(file: Path) -> None:
    file.unlink(missing_ok=True)
    os.mkfifo(file)


def cifar(raw: Path) -> None:
    """Write batches of CIFAR, which torchvision reads as pickles, with pickles that contain code."""
    place = raw / "cifar-10-batches-py"
    place.mkdir()
    for name in [*(f"data_batch_{number}" for number in range(1, 6)), "test_batch", "batches.meta"]:
        (place / name).write_bytes(pickle.dumps({"data": Code(), "labels": Code()}))


NPZ, FOLDER, MNIST = "npz:mine.npz", "folder:mine", "mnist"
NOT_WHOLE = "mine.npz is not a whole .npz file"
GHOSTSCRIPT = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n%%EndComments\n(the-code-ran) (w) file\n%%EOF\n"
HUGE = 2**40

FILES: dict[str, tuple[str, Make, str]] = {
    # An archive of arrays.
    "npz: a pickle instead of an archive": (
        NPZ,
        lambda raw: (raw / "mine.npz").write_bytes(pickle.dumps(Code())),
        NOT_WHOLE,
    ),
    "npz: images that are pickled objects": (
        NPZ,
        lambda raw: npz(raw / "mine.npz", images=npy(np.array([Code()] * 6), allow_pickle=True), labels=LABELS),
        "holds Python objects, which could run code when read",
    ),
    "npz: labels that are pickled objects": (
        NPZ,
        lambda raw: npz(raw / "mine.npz", images=IMAGES, labels=npy(np.array([Code()] * 6), allow_pickle=True)),
        "holds Python objects, which could run code when read",
    ),
    "npz: an expression in the header": (
        NPZ,
        claims("(__import__('os').mkdir('the-code-ran') or 6, 8, 8)"),
        NOT_WHOLE,
    ),
    "npz: 20 GiB of zeros in 20 MB": (NPZ, zeros_of(20), "claims 20 GiB of data, more than the 16 GiB allowed"),
    "npz: an exabyte": (NPZ, claims("(6, 1099511627776, 1048576)"), "more than the 16 GiB allowed"),
    "npz: a size of 400 digits": (NPZ, claims(f"({10**400}, 8, 8)"), "mine.npz"),
    "npz: a size of 9,000 hexadecimal digits": (NPZ, claims(f"(0x{'f' * 9000}, 8, 8)"), "mine.npz"),
    "npz: a negative size": (NPZ, claims("(-6, 8, 8)"), "is empty"),
    "npz: no size": (NPZ, saved(images=np.uint8(3)), "has shape ()"),
    "npz: sizes that are no numbers": (NPZ, claims("('six', 8, 8)"), NOT_WHOLE),
    "npz: 4,000 open brackets": (NPZ, claims("(" * 4000), NOT_WHOLE),
    "npz: a header of 4 GiB": (
        NPZ,
        lambda raw: npz(raw / "mine.npz", images=header("{" + " " * 2**20, (2, 0), 2**32 - 1), labels=LABELS),
        "reading array header, expected 4294967295 bytes",
    ),
    "npz: a header of another version": (
        NPZ,
        lambda raw: npz(raw / "mine.npz", images=header("{}", (9, 9)), labels=LABELS),
        NOT_WHOLE,
    ),
    "npz: a header without text": (NPZ, lambda raw: npz(raw / "mine.npz", images=header(""), labels=LABELS), NOT_WHOLE),
    "npz: a type that does not exist": (
        NPZ,
        lambda raw: npz(raw / "mine.npz", images=claim("(6, 8, 8)", "'|q9'"), labels=LABELS),
        NOT_WHOLE,
    ),
    "npz: a type of a terabyte": (
        NPZ,
        lambda raw: npz(raw / "mine.npz", images=claim("(6, 8, 8)", "'|V1099511627776'"), labels=LABELS),
        "mine.npz",
    ),
    "npz: broken LZMA": (NPZ, lzma_member, NOT_WHOLE),
    "npz: an empty file": (NPZ, spoilt(lambda content: b""), NOT_WHOLE),
    "npz: an empty archive": (
        NPZ,
        lambda raw: np.savez(raw / "mine.npz"),
        "has no array 'images', 'features' or 'tokens', only none at all",
    ),
    "npz: the first half": (NPZ, spoilt(lambda content: content[: len(content) // 2]), NOT_WHOLE),
    "npz: all but the last byte": (NPZ, spoilt(lambda content: content[:-1]), NOT_WHOLE),
    "npz: a flipped bit among the pixels": (
        NPZ,
        spoilt(lambda content: content[:200] + bytes([content[200] ^ 1]) + content[201:]),
        NOT_WHOLE,
    ),
    "npz: another file's first bytes": (NPZ, spoilt(lambda content: b"\x1f\x8b\x08\0" + content[4:]), NOT_WHOLE),
    "npz: gzip": (NPZ, spoilt(gzip.compress), NOT_WHOLE),
    "npz: xz": (NPZ, spoilt(lzma.compress), NOT_WHOLE),
    "npz: a single array": (NPZ, spoilt(lambda content: npy(IMAGES)), NOT_WHOLE),
    "npz: fewer pixels than the header says": (
        NPZ,
        lambda raw: npz(raw / "mine.npz", images=npy(IMAGES)[:-1], labels=LABELS),
        "images.npy is cut short",
    ),
    "npz: names that leave the archive": (
        NPZ,
        lambda raw: npz(raw / "mine.npz", **{"../images": IMAGES, "/labels": LABELS}),
        "has no array 'images'",
    ),
    "npz: a name with a line break": (
        NPZ,
        lambda raw: npz(raw / "mine.npz", **{"images\n\x1b[31mred": IMAGES}),
        r"only images\n\x1b[31mred",
    ),
    "npz: complex numbers": (NPZ, saved(images=IMAGES * 1j), "is complex128 and must be uint8"),
    "npz: not a number": (NPZ, saved(images=np.full((6, 8, 8), np.nan)), "is float64 and must be uint8"),
    "npz: texts": (NPZ, saved(images=np.full((6, 8, 8), "x")), "is <U1 and must be uint8"),
    "npz: dates for labels": (NPZ, saved(labels=LABELS.astype("M8[s]")), "must be integers or text of shape (N,)"),
    "npz: a label of 2^40": (NPZ, saved(labels=LABELS * HUGE), "class numbers, integers from 0 to 9999"),
    "npz: a label of -2^63": (NPZ, saved(labels=np.full(6, -(2**63))), "class numbers, integers from 0 to 9999"),
    "npz: a single number for labels": (NPZ, saved(labels=np.array(3)), "must be integers or text of shape (N,)"),
    "npz: a folder": (NPZ, lambda raw: (raw / "mine.npz").mkdir(), "is a folder and not a file"),
    "npz: a pipe": (NPZ, lambda raw: os.mkfifo(raw / "mine.npz"), "is neither file nor folder"),
    "npz: a broken link": (NPZ, lambda raw: (raw / "mine.npz").symlink_to("gone"), "is neither file nor folder"),
    "npz: a link to itself": (
        NPZ,
        lambda raw: (raw / "mine.npz").symlink_to("mine.npz"),
        "is neither file nor folder",
    ),
    "npz: endless zeros": ("npz:/dev/zero", lambda raw: None, "is neither file nor folder"),
    "npz: a path out of the data folder": ("npz:../mine.npz", lambda raw: None, "leads out of"),
    "npz: a path that comes back out": ("npz:a/../../mine.npz", lambda raw: None, "leads out of"),
    "npz: a zero byte in the path": ("npz:mine\0.npz", lambda raw: None, "has a zero byte"),
    "npz: a zero byte in the name of a home": ("npz:~\0/mine.npz", lambda raw: None, "has a zero byte"),
    "npz: a path of 100,000 letters": ("npz:" + "long/" * 20_000, lambda raw: None, "there is no file"),
    "npz: a line break in the path": ("npz:a\nb\x1b[2J.npz", lambda raw: None, r"a\nb\x1b[2J.npz"),
    # A folder of images.
    "folder: 50,000 x 50,000 pixels": (
        FOLDER,
        image(png(50_000, 50_000)),
        "1.png has more than the 67,108,864 pixels allowed",
    ),
    "folder: 2^31 x 2^31 pixels": (FOLDER, image(png(2**31 - 1, 2**31 - 1)), "1.png"),
    "folder: 12,000 x 12,000 pixels": (
        FOLDER,
        image(png(12_000, 12_000)),
        "1.png has more than the 67,108,864 pixels allowed",
    ),
    "folder: 9,000 x 9,000 pixels": (
        FOLDER,
        image(png(9_000, 9_000)),
        "1.png has more than the 67,108,864 pixels allowed",
    ),
    "folder: a BMP of 2^31 rows": (
        FOLDER,
        image(b"BM" + struct.pack("<IIIIiiHHIIIIII", 100, 0, 54, 40, 2**30, 2**30, 1, 24, 0, 0, 0, 0, 0, 0), "1.bmp"),
        "1.bmp",
    ),
    "folder: a comment of 256 MiB in 256 kB": (
        FOLDER,
        lambda raw: in_class(raw, content=png(8, 8, chunk(b"zTXt", b"Comment\0\0" + zlib.compress(bytes(2**28))))),
        "1.png cannot be read",
    ),
    "folder: an image file of 1 TiB": (FOLDER, lambda raw: sparse(in_class(raw, "1.webp"), HUGE), "256 MiB allowed"),
    "folder: no pixels": (FOLDER, image(png(0, 0)), "1.png"),
    "folder: PostScript called PNG": (FOLDER, image(GHOSTSCRIPT), "1.png cannot be read"),
    "folder: a pickle called PNG": (FOLDER, image(pickle.dumps(Code())), "1.png cannot be read"),
    "folder: an empty file": (FOLDER, image(b""), "1.png cannot be read"),
    "folder: the head of an image": (FOLDER, lambda raw: cut(drawn(raw), 0.3), "0.png cannot be read"),
    "folder: half a JPEG": (
        FOLDER,
        lambda raw: cut(drawn(raw, "0.jpg", NUMBERS.integers(0, 256, (64, 64), dtype=np.uint8))),
        "0.jpg cannot be read",
    ),
    "folder: half a TIFF": (FOLDER, lambda raw: cut(drawn(raw, "0.tif")), "0.tif cannot be read"),
    "folder: 16 bits": (FOLDER, lambda raw: drawn(raw, "0.png", IMAGES[0].astype(np.uint16)), "more than 8 bits"),
    "folder: not a number": (
        FOLDER,
        lambda raw: drawn(raw, "0.tif", np.full((8, 8), np.nan, np.float32)),
        "more than 8 bits",
    ),
    "folder: sizes that differ": (
        FOLDER,
        lambda raw: [drawn(raw), drawn(raw, "1.png", IMAGES[0][:4])],
        "give the experiment's image a size",
    ),
    "folder: a pipe": (FOLDER, lambda raw: [drawn(raw), os.mkfifo(in_class(raw))], "is not a file that can be read"),
    "folder: a folder called PNG": (FOLDER, lambda raw: in_class(raw).mkdir(), "is not a file that can be read"),
    "folder: a link out of it": (FOLDER, link(outside), "is a symbolic link out of its folder"),
    "folder: a link out of it by dots": (
        FOLDER,
        lambda raw: [outside(raw), link(lambda raw: "../../../secret.png")(raw)],
        "is a symbolic link out of its folder",
    ),
    "folder: a link to a device": (FOLDER, link(lambda raw: "/dev/zero"), "is a symbolic link out of its folder"),
    "folder: a class that is a link out of it": (FOLDER, linked_class, "is a symbolic link out of its folder"),
    "folder: a broken link": (FOLDER, link(lambda raw: "gone.png"), "is not a file that can be read"),
    "folder: a link to itself": (FOLDER, link(lambda raw: "1.png"), "is not a file that can be read"),
    "folder: a name with a line break": (FOLDER, image(b"", "1\n\x1b[31m.png"), r"1\n\x1b[31m.png cannot be read"),
    "folder: a file": (FOLDER, lambda raw: (raw / "mine").write_text(""), "is a file and not a folder"),
    "folder: a pipe instead": (FOLDER, lambda raw: os.mkfifo(raw / "mine"), "is neither file nor folder"),
    "folder: a path out of the data folder": ("folder:..", lambda raw: None, "leads out of"),
    "folder: images without classes": (FOLDER, lambda raw: drawn(raw).parent.rename(raw / "mine2") and None, "no subf"),
    # torchvision's files.
    "mnist: fewer bytes than the header says": (MNIST, mnist(train_images_idx3=idx(IMAGES)[:-1]), "as long as its"),
    "mnist: more bytes than the header says": (MNIST, mnist(train_images_idx3=idx(IMAGES) + b"\0"), "as long as its"),
    "mnist: an image count of 2^32": (
        MNIST,
        mnist(train_images_idx3=bytes([0, 0, 8, 3]) + b"\xff" * 12),
        "not as long as its header says",
    ),
    "mnist: floats": (
        MNIST,
        mnist(train_images_idx3=bytes([0, 0, 13]) + idx(IMAGES)[3:]),
        "not as long as its header says",
    ),
    "mnist: a type that does not exist": (
        MNIST,
        mnist(train_images_idx3=bytes([0, 0, 10]) + idx(IMAGES)[3:]),
        "not as long as its header says",
    ),
    "mnist: wrong magic": (MNIST, mnist(t10k_labels_idx1=b"\x93NUMPY"), "not as long as its header says"),
    "mnist: an empty file": (MNIST, mnist(t10k_labels_idx1=b""), "not as long as its header says"),
    "mnist: no images": (MNIST, mnist(train_images_idx3=idx(IMAGES[:0])), "not as long as its header says"),
    "mnist: a file of 1 TiB": (
        MNIST,
        mnist(train_images_idx3=lambda file: sparse(file, HUGE)),
        "not as long as its header says",
    ),
    "mnist: 40 GiB of images, all there": (
        MNIST,
        mnist(
            train_images_idx3=lambda file: [
                sparse(file, 16 + 40 * 2**30),
                file.open("r+b").write(bytes([0, 0, 8, 3]) + struct.pack(">III", 40 * 2**10, 1024, 1024)),
            ]
        ),
        "more than the 16 GiB allowed",
    ),
    "mnist: fewer labels than images": (MNIST, mnist(train_labels_idx1=idx(LABELS[:-1])), "do not go together"),
    "mnist: images of two sizes": (MNIST, mnist(t10k_images_idx3=idx(IMAGES[:, :4])), "do not go together"),
    "mnist: a pipe": (MNIST, mnist(train_images_idx3=pipe), "could not be downloaded"),
    "emnist: a label 0": ("emnist", letters, "has a label 0, and A is 1"),
    "cifar10: pickles with code in them": ("cifar10", cifar, "could not be downloaded"),
}
"""Cases by description: the source, the function that makes its file in the data folder, and words of the message."""
