import ast
import os
import sys
from pathlib import Path

import pytest
import torch
from cases import case
from input_errors import input_error

from ktpfl_pipeline import data
from ktpfl_pipeline.data import partition
from ktpfl_pipeline.data.registry import SCHEMES, SOURCES
from ktpfl_pipeline.data.sources import adapt, load, reader

FOLDER = Path(data.__file__).parent


def test_classes_are_renumbered_in_the_order_given(tmp_path):
    everything, kept = load("digits", tmp_path), load("digits", tmp_path, classes=[7, 3])
    assert len(kept) == int((everything.labels == 7).sum() + (everything.labels == 3).sum())
    assert torch.equal(kept.inputs[kept.labels == 0], everything.inputs[everything.labels == 7])
    assert torch.equal(kept.inputs[kept.labels == 1], everything.inputs[everything.labels == 3])


@pytest.mark.parametrize("name", SOURCES)
def test_what_a_reader_offers_is_its_own(name):
    """A function that a module only imports would be taken for one that it offers."""
    offered = [found for hook in ("load", "unlabeled", "included") if (found := getattr(reader(name), hook, None))]
    assert {each.__module__ for each in offered} == {reader(name).__name__}


def test_unusable_sources_and_classes_are_input_errors(tmp_path):
    for source, classes, words in (
        ("digit", None, ("'digit' is unknown", "did you mean 'digits'", "cifar10, cifar100")),
        ("my/images.npz", None, ("'my/images.npz' is unknown", "is given as 'npz:my/images.npz'")),
        ("", None, ("'' is unknown", "choose from digits")),
        ("digits:8", None, ("takes no argument", "'8'", "leave out ':8'")),
        ("mnist:train", None, ("takes no argument", "'train'")),
        ("emnist:leters", None, ("'leters' is unknown", "did you mean 'letters'", "byclass, bymerge")),
        ("npz", None, ("needs a path", "write 'npz:yourfile.npz'")),
        ("npz:absent.npz", None, ("no file", "absent.npz", "correct the path")),
        ("npz:" + "long" * 1000, None, ("no file", "longlong")),
        ("folder:", None, ("needs a path", "write 'folder:yourfolder'")),
        ("folder:absent", None, ("no folder", "absent", "correct the path")),
        ("digits", [3, 10], ("class 10 is not in source 'digits'", "0 to 9")),
        ("digits", [-1], ("class -1 is not in source",)),
        ("digits", [], ("`classes` is []; it must name at least one class",)),
        ("digits", [1, 2, 1], ("`classes` is [1, 2, 1]", "each class once")),
    ):
        with case(source, classes), input_error(*words):
            load(source, tmp_path, classes)


def test_the_registry_names_every_scheme():
    assert (*partition.SCHEMES,) == SCHEMES


def test_every_source_is_documented_in_its_function():
    assert all(reader(name).load.__doc__ for name in SOURCES)


def test_slow_packages_are_imported_where_they_are_used():
    for file in sorted(FOLDER.rglob("*.py")):
        with case(file):
            tree = ast.parse(file.read_text())
            imported = {
                name.partition(".")[0]
                for node in tree.body
                if isinstance(node, ast.Import | ast.ImportFrom)
                for name in (
                    [node.module or ""] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names]
                )
            }
            assert imported - set(sys.stdlib_module_names) <= {"annotated_types", "numpy", "torch", "ktpfl_pipeline"}


@pytest.mark.real_data
@pytest.mark.skipif("KTPFL_REAL_DATA" not in os.environ, reason="KTPFL_REAL_DATA names no folder")
@pytest.mark.parametrize(
    ("name", "shape", "classes"),
    [
        ("mnist", (1, 28, 28), 10),
        ("fashion_mnist", (1, 28, 28), 10),
        ("cifar10", (3, 32, 32), 10),
        ("cifar100", (3, 32, 32), 100),
    ],
)
def test_real_images_load_and_adapt(name, shape, classes):
    samples = load(f"npz:{name}.npz", Path(os.environ["KTPFL_REAL_DATA"]))
    assert samples.inputs.shape[1:] == shape
    assert samples.labels.unique().tolist() == list(range(classes))
    for channels, size in ((1, 28), (3, 32)):
        adapted = adapt(samples.inputs[:2000], (channels, size, size))
        assert adapted.shape == (2000, channels, size, size)
        # Luma weighs green more than the plain mean does, resizing blurs: the brightness all but stays.
        assert adapted.float().mean().item() == pytest.approx(samples.inputs[:2000].float().mean().item(), rel=0.03)
