import pytest
from cases import case

from ktpfl_pipeline.reports import paper


def number(source, partition, method):
    return paper.number({"private": {"source": source}, "partition": {"scheme": partition}}, method)


def test_the_numbers_that_can_be_cited():
    assert number("fashion_mnist", "two_labels", "kt_pfl") == 75.6
    assert number("fashion_mnist", "two_labels", "fedmd") == 66.1


def test_no_number_is_invented():
    for dataset, partition, method in (
        ("fashion_mnist", "two_labels", "local"),  # the paper has no such row
        ("fashion_mnist", "two_labels", "kt_pfl_likelihood"),  # ours
        ("fashion_mnist", "two_labels", "sim_pfl"),  # a cell that we could not read
        ("fashion_mnist", "all_labels", "kt_pfl"),
        ("emnist:letters", "two_labels", "kt_pfl"),
        ("digits", "two_labels", "fedmd"),
    ):
        with case(dataset, partition, method):
            assert number(dataset, partition, method) is None


def test_what_data_are_called():
    for source, title in (
        ("emnist:letters", "EMNIST"),
        ("npz:mine/cifar10.npz", "CIFAR-10"),
        *((name, name) for name in ("digits", "npz:my.npz", "folder:cifar10", "folder:scans")),
    ):
        with case(source):
            assert paper.dataset({"private": {"source": source}}) == title


def test_names_are_the_rows_of_the_papers_tables():
    first = {"FedMD", "FedDF", "pFedDF", "Sim-pFL", "TopK-pFL", "KT-pFL"}
    second = {"FedAvg", "FedAvg-Local FT", "Per-FedAvg", "pFedMe", "FedAMP", "FedFomo", "FedHN", "KT-pFL"}
    assert set(paper.names().values()) == first | second
    assert not {"local", "kt_pfl_likelihood"} & set(paper.names())


def test_the_papers_setting(paper_settings):
    assert not paper.differences(paper_settings)
    paper_settings["architectures"] = ["lenet", "alexnet", "resnet18", "shufflenet_v2"] * 5
    paper_settings["private"] = {"source": "emnist:letters", "classes": list(range(10))}
    assert not paper.differences(paper_settings)


def test_another_setting_is_named(paper_settings):
    for change, words in (
        ({"private": {"source": "digits"}}, "data digits instead of EMNIST, Fashion-MNIST or CIFAR-10"),
        ({"private": {"source": "fashion_mnist", "classes": [0, 1]}}, "2 classes instead of 10"),
        ({"private": {"source": "fashion_mnist", "samples": 4000}}, "4000 private samples instead of all"),
        ({"private": {"source": "npz:a/fashion_mnist.npz"}}, "whatever it holds of Fashion-MNIST"),
        ({"private": {"source": "cifar10"}}, "public data mnist instead of cifar100"),
        ({"public": {"source": "open_part", "batch": 3000}}, "public data open_part instead of mnist"),
        ({"partition": {"scheme": "dirichlet"}}, "partition dirichlet instead of two_labels or all_labels"),
        ({"clients": 8}, "8 clients instead of 20"),
        ({"training": {"epochs": 5}}, "training.epochs 5 instead of 20"),
        ({"public": {"source": "mnist", "batch": 300}}, "public.batch 300 instead of 3000"),
        ({"architectures": ["lenet", "mlp"]}, "models lenet, mlp instead of"),
        ({"architectures": ["lenet", "lenet", "alexnet", "resnet18", "shufflenet_v2"]}, "in equal numbers"),
    ):
        with case(change):
            settings = {**paper_settings, **change}
            assert len(paper.differences(settings)) == 1
            assert words in paper.differences(settings)[0]


UNKNOWN = "a partition that may not be Table 2's, which we do not know"


@pytest.fixture
def homo_settings(paper_settings):
    """CIFAR-10 with 20 clients of one architecture; the public data mean nothing here."""
    changes = {"architectures": ["mcmahan_cnn"], "private": {"source": "cifar10"}, "public": {"source": "open_part"}}
    return {**paper_settings, **changes, "participation": 1.0}


class TestTable2:
    def test_the_numbers_that_can_be_cited(self, homo_settings):
        assert paper.number(homo_settings, "fedavg") == 51.94
        assert paper.number(homo_settings, "fedavg_ft") == 42.88
        assert paper.number({**homo_settings, "clients": 100}, "fedavg_ft") == 50.91

    def test_no_number_is_invented(self, homo_settings):
        for change, method in (
            ({}, "kt_pfl_params"),
            ({"clients": 100}, "fedavg"),
            ({"clients": 10}, "fedavg"),
            ({}, "local"),
            ({}, "apple"),
        ):
            with case(change, method):
                assert paper.number({**homo_settings, **change}, method) is None

    def test_several_architectures_are_table_1(self, paper_settings):
        assert paper.number(paper_settings, "kt_pfl") == 75.6
        assert paper.number(paper_settings, "fedavg") is None

    def test_its_partition_is_not_known_so_nothing_is_its_setting(self, homo_settings):
        assert paper.differences(homo_settings) == [UNKNOWN]
        assert paper.differences({**homo_settings, "clients": 100, "participation": 0.1}) == [UNKNOWN]

    def test_another_setting_is_named(self, homo_settings):
        for change, words in (
            ({"clients": 100}, "participation 1.0 instead of 0.1 with 100 clients"),
            ({"clients": 8}, "8 clients instead of 20 or 100"),
            ({"architectures": ["cnn"]}, "models cnn instead of mcmahan_cnn"),
            ({"training": {"epochs": 4}}, "training.epochs 4 instead of 20"),
            ({"private": {"source": "digits"}}, "data digits instead of EMNIST, Fashion-MNIST or CIFAR-10"),
        ):
            with case(change):
                assert set(paper.differences({**homo_settings, **change})) == {UNKNOWN, words}
