import pytest

from ktpfl_pipeline.reports import paper


def test_the_numbers_that_can_be_cited():
    assert paper.paper_number("fashion_mnist", "two_labels", "kt_pfl") == 75.6
    assert paper.paper_number("fashion_mnist", "two_labels", "fedmd") == 66.1
    assert all(number.table == "Table 1" and number.setting for number in paper.NUMBERS.values())


@pytest.mark.parametrize(
    ("dataset", "partition", "method"),
    [
        ("fashion_mnist", "two_labels", "local"),  # the paper has no such row
        ("fashion_mnist", "two_labels", "kt_pfl_likelihood"),  # ours
        ("fashion_mnist", "two_labels", "sim_pfl"),  # a cell that we could not read
        ("fashion_mnist", "all_labels", "kt_pfl"),
        ("emnist:letters", "two_labels", "kt_pfl"),
        ("digits", "two_labels", "fedmd"),
    ],
)
def test_no_number_is_invented(dataset, partition, method):
    assert paper.paper_number(dataset, partition, method) is None


@pytest.mark.parametrize(
    ("source", "title"),
    [
        ("emnist:letters", "EMNIST"),
        ("npz:mine/cifar10.npz", "CIFAR-10"),
        *((name, name) for name in ("digits", "npz:my.npz", "folder:cifar10", "folder:scans")),
    ],
)
def test_what_data_are_called(source, title):
    assert paper.title(source) == title


def test_names_are_the_rows_of_the_papers_table():
    assert set(paper.NAMES.values()) == {"FedMD", "FedDF", "pFedDF", "Sim-pFL", "TopK-pFL", "KT-pFL"}
    assert not {"local", "kt_pfl_likelihood"} & set(paper.NAMES)


def test_the_papers_setting(paper_settings):
    assert paper.same_setting(paper_settings)
    paper_settings["architectures"] = ["lenet", "alexnet", "resnet18", "shufflenet_v2"] * 5
    paper_settings["private"] = {"source": "emnist:letters", "classes": list(range(10))}
    assert paper.same_setting(paper_settings)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"private": {"source": "digits"}}, "data digits instead of EMNIST, Fashion-MNIST or CIFAR-10"),
        ({"private": {"source": "fashion_mnist", "classes": [0, 1]}}, "2 classes instead of 10"),
        ({"private": {"source": "fashion_mnist", "samples": 4000}}, "4000 private images instead of all"),
        ({"private": {"source": "npz:a/fashion_mnist.npz"}}, "whatever it holds of Fashion-MNIST"),
        ({"private": {"source": "cifar10"}}, "public data mnist instead of cifar100"),
        ({"public": {"source": "open_part", "batch": 3000}}, "public data open_part instead of mnist"),
        ({"partition": {"scheme": "dirichlet"}}, "partition dirichlet instead of two_labels or all_labels"),
        ({"clients": 8}, "8 clients instead of 20"),
        ({"training": {"epochs": 5}}, "training.epochs 5 instead of 20"),
        ({"public": {"source": "mnist", "batch": 300}}, "public.batch 300 instead of 3000"),
        ({"architectures": ["lenet"]}, "models lenet instead of"),
        ({"architectures": ["lenet", "lenet", "alexnet", "resnet18", "shufflenet_v2"]}, "in equal numbers"),
    ],
)
def test_another_setting_is_named(paper_settings, change, words):
    settings = {**paper_settings, **change}
    assert not paper.same_setting(settings)
    assert len(paper.differences(settings)) == 1
    assert words in paper.differences(settings)[0]
