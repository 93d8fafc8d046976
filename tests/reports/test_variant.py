"""The folder of a comparison's report is named by what was compared."""

from cases import case

from ktpfl_pipeline.core.identity import digest
from ktpfl_pipeline.reports.variant import LONGEST, variant

SHAPES = ((1, 8, 8), (1, 28, 28))


def test_what_is_compared_is_in_the_folders_name():
    """So that comparisons which differ in it have reports side by side."""
    settings = {
        **{"private": {"source": "digits"}, "clients": 20},
        **{"participation": 1.0, "partition": {"scheme": "two_labels", "alpha": 0.5}, "public": {"source": "mnist"}},
    }
    for changed, name in (
        ({}, "digits-8x8x1_to_28x28x1-20_clients-two_labels-mnist"),
        (
            {"private": {"source": "npz:../my images/a.npz"}},
            "npz_.._my_images_a.npz-81d01a-8x8x1_to_28x28x1-20_clients-two_labels-mnist",
        ),
        ({"clients": 100, "participation": 0.1}, "digits-8x8x1_to_28x28x1-100_clients-two_labels-mnist-0.1"),
        (
            {"partition": {"scheme": "dirichlet", "alpha": 0.3}, "public": {"source": "open_part"}},
            "digits-8x8x1_to_28x28x1-20_clients-dirichlet-0.3-open_part",
        ),
        (
            {"partition": {"scheme": "k_labels", "labels_per_client": 3}},
            "digits-8x8x1_to_28x28x1-20_clients-k_labels-3-mnist",
        ),
        ({"hyperparameters": "configured"}, "digits-8x8x1_to_28x28x1-20_clients-two_labels-mnist"),
        ({"hyperparameters": "tuned"}, "digits-8x8x1_to_28x28x1-20_clients-two_labels-mnist-tuned"),
        (
            {"availability": 0.6, "stragglers": {"share": 0.4, "delay": 2}, "budgets": {"share": 0.5, "epochs": 0.25}},
            "digits-8x8x1_to_28x28x1-20_clients-two_labels-mnist-available-0.6-late-0.4-2-budgets-0.5-0.25",
        ),
        ({"budgets": {"share": 0.5}}, "digits-8x8x1_to_28x28x1-20_clients-two_labels-mnist-budgets-0.5-0.25"),
        (
            {"knowledge": {"encoding": "top_k", "k": 3, "cache": 5, "select": 0.5}, "newcomers": 0.2},
            "digits-8x8x1_to_28x28x1-20_clients-two_labels-mnist-newcomers-0.2-top_k3-cache-5-select-0.5",
        ),
        (
            {"training": {"privacy": {"noise_multiplier": 1.0, "max_grad_norm": 1.0, "delta": 1e-5}}},
            "digits-8x8x1_to_28x28x1-20_clients-two_labels-mnist-private-1.0-1.0-1e-05",
        ),
        (
            {
                **{"availability": 1.0, "stragglers": {"share": 0.0, "delay": 1}, "newcomers": 0.0},
                **{"knowledge": {"encoding": "float32", "k": 3, "cache": 0, "select": 1.0}},
                **{"training": {"privacy": None}},
            },
            "digits-8x8x1_to_28x28x1-20_clients-two_labels-mnist",
        ),
    ):
        with case(changed):
            assert variant({**settings, **changed}, *SHAPES) == name


def test_settings_without_partition_have_no_variant():
    assert variant({}) == ""


def test_what_was_done_to_the_inputs():
    for native, shape, name in (
        ((3, 32, 32), (3, 32, 32), "a-32x32x3"),
        ((3, 48, 64), (1, 28, 28), "a-48x64x3_to_28x28x1"),
        ((9, 128), (9, 128), "a-9x128"),
        ((30,), (30,), "a-30"),
        ((), (3, 64, 64), "a-to_64x64x3"),
        ((), (), "a"),
    ):
        with case(native, shape):
            assert variant({"private": {"source": "a"}}, native, shape) == name


def test_two_sources_never_have_one_name():
    sources = ["a", "npz:a", "folder:a", "npz:a/b.npz", "npz:a_b.npz", "npz:a b.npz", "npz:./a.npz", "npz:a.npz"]
    assert len({variant({"private": {"source": source}}) for source in sources}) == len(sources)
    assert len({variant({"private": {"source": "x"}, "public": {"source": source}}) for source in sources}) == 8


def test_a_long_name_has_the_file_alone():
    settings = {"clients": 10, "partition": {"scheme": "two_labels"}, "public": {"source": "open_part"}}
    deep = "/".join(["folder"] * 40)
    for source, name in ((f"npz:/{deep}/mine.npz", "npz_mine.npz"), (f"clients:/{deep}/", "clients_folder")):
        with case(source):
            expected = f"{name}-{digest(source)[:6]}-10_clients-two_labels-open_part"
            assert variant({**settings, "private": {"source": source}}) == expected


def test_no_name_is_too_long_for_a_file_system_and_none_is_another():
    """Letters of two bytes and many settings that are not the default."""
    others = {"clients": 100_000, "availability": 0.6, "training": {"privacy": dict.fromkeys("abcdefgh", 1.23456789)}}
    letters = "é" * 200
    sources = [f"npz:{letters}{end}.npz" for end in "ab"] + [f"{end}npz:{letters}.npz" for end in "ab"]
    found = {
        variant({**others, "private": {"source": private}, "public": {"source": public}})
        for private in sources
        for public in sources
    }
    assert len(found) == len(sources) ** 2
    assert max(len(name.encode()) for name in found) <= LONGEST
