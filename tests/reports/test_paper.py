import pytest
from cases import case

from ktpfl_pipeline.reports import paper
from ktpfl_pipeline.reports.paper import tables


def number(source, partition, method):
    cited = paper.number({"private": {"source": source}, "partition": {"scheme": partition}}, method)
    return cited and cited.value


class TestNumbers:
    """Read a second time in the LaTeX source, and not copied from the tables of the module."""

    def test_every_table_is_complete(self):
        assert len(tables.SEVERAL) == 6 * 3 * 2
        assert len(tables.ONE) == 8 * 3 * 2
        sizes = {part: [len(row) for row in rows.values()] for part, rows in tables.OF_KT_PFL.items()}
        assert sizes == {"table3": [8] * 3, "table4": [4] * 3, "table5": [3], "table6": [6] * 3}

    def test_sums_of_rows(self):
        """A number that was copied wrong or moved to another row changes a sum."""
        for text, sums in (
            (tables.TABLE_1, [350.34, 363.86, 382.82, 385.07, 384.46, 396.89]),
            (tables.TABLE_2, [411.25, 438.30, 436.03, 460.64, 461.66, 477.59, 490.53, 496.45]),
            (tables.TABLE_3, [729.97, 712.06, 471.62]),
            (tables.TABLE_4, [364.26, 357.49, 235.56]),
            (tables.TABLE_5, [266.93]),
            (tables.TABLE_6, [495.33, 474.35, 321.81]),
        ):
            found = [sum(cited.value for cited in row) for row in tables.rows(text).values()]
            assert found == pytest.approx(sums, abs=1e-6)

    def test_numbers_are_in_their_places(self):
        for source, partition, method, value in (
            ("fashion_mnist", "two_labels", "kt_pfl", 75.60),
            ("fashion_mnist", "all_labels", "kt_pfl", 75.48),
            ("emnist:letters", "two_labels", "topk_pfl", 73.91),
            ("cifar10", "all_labels", "sim_pfl", 42.50),
            ("cifar10", "two_labels", "pfeddf_soft", 39.54),
            ("npz:cifar10.npz", "two_labels", "feddf", 37.81),
        ):
            with case(source, partition, method):
                assert number(source, partition, method) == value

    def test_a_spread_is_that_of_table_5_only(self):
        assert str(tables.OF_KT_PFL["table5"]["fashion_mnist"]["public EMNIST"]) == "88.76 ± 0.21"
        assert str(tables.OF_KT_PFL["table3"]["cifar10"]["R = 5"]) == "58.91"

    def test_best_columns(self):
        settings = {"private": {"source": "fashion_mnist"}}
        assert paper.best("table3", settings, ["E = 5", "E = 20", "R = 1", "R = 2"]) == [
            ("E = 20", ["E = 5"]),
            ("R = 2", ["R = 1"]),
        ]
        assert paper.best("table6", settings, ["|D_r| = 10"]) == [("|D_r| = 3000", ["|D_r| = 10"])]
        assert paper.best("table5", settings, ["public MNIST"]) == []


def test_no_number_is_invented():
    for dataset, partition, method in (
        ("fashion_mnist", "two_labels", "local"),  # the paper has no such row
        ("fashion_mnist", "two_labels", "kt_pfl_likelihood"),  # ours
        ("fashion_mnist", "dirichlet", "kt_pfl"),
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
        ({"private": {"source": "digits"}}, "private data digits instead of EMNIST or Fashion-MNIST or CIFAR-10"),
        ({"private": {"source": "fashion_mnist", "classes": [0, 1]}}, "classes 2 instead of 10"),
        ({"private": {"source": "fashion_mnist", "samples": 4000}}, "private.samples 4000 instead of all"),
        (
            {"private": {"source": "npz:a/fashion_mnist.npz"}},
            "images of the file npz:a/fashion_mnist.npz instead",
        ),
        (
            {"private": {"source": "cifar10"}, "training": {"learning_rate": 0.02}},
            "public.source mnist instead of cifar100",
        ),
        ({"public": {"source": "open_part", "batch": 3000}}, "public.source open_part instead of mnist"),
        ({"partition": {"scheme": "dirichlet"}}, "partition.scheme dirichlet instead of two_labels or all_labels"),
        ({"clients": 8}, "clients 8 instead of 20"),
        ({"training": {"learning_rate": 0.02}}, "training.learning_rate 0.02 instead of 0.01"),
        ({"distillation": {"learning_rate": 0.1}}, "distillation.learning_rate 0.1 instead of 0.01"),
        ({"partition": {"scheme": "two_labels", "test_share": 0.3}}, "partition.test_share 0.3 instead of 0.25"),
        ({"training": {"epochs": 20, "optimizer": "adam"}}, "training.optimizer adam instead of sgd"),
        ({"training": {"epochs": 5}}, "training.epochs 5 instead of 20"),
        ({"public": {"source": "mnist", "batch": 300}}, "public.batch 300 instead of 3000"),
        ({"architectures": ["lenet", "mlp"]}, "networks lenet, mlp instead of"),
        (
            {"architectures": ["lenet", "lenet", "alexnet", "resnet18", "shufflenet_v2"]},
            "in unequal numbers instead of",
        ),
    ):
        with case(change):
            settings = {**paper_settings, **change}
            assert len(paper.differences(settings)) == 1
            assert words in paper.differences(settings)[0]


@pytest.fixture
def homo_settings(paper_settings):
    """CIFAR-10 with 20 clients of one architecture; the public data mean nothing here."""
    changes = {
        "architectures": ["mcmahan_cnn"],
        "private": {"source": "cifar10"},
        "public": {"source": "none"},
        "partition": {"scheme": "lognormal", "sigma": 2.0},
        "training": {"epochs": 20, "learning_rate": 0.005},
    }
    return {**paper_settings, **changes, "participation": 1.0}


class TestTable2:
    def test_the_numbers_that_can_be_cited(self, homo_settings):
        for clients, method, value in (
            (20, "fedavg", 51.94),
            (20, "fedavg_ft", 42.88),
            (100, "fedavg_ft", 50.91),
            (100, "pfedhn", 57.38),
            (20, "kt_pfl_params", 66.96),
        ):
            with case(clients, method):
                assert paper.number({**homo_settings, "clients": clients}, method).value == value

    def test_no_number_is_invented(self, homo_settings):
        for change, method in (
            ({"clients": 10}, "fedavg"),
            ({}, "local"),
            ({}, "apple"),
        ):
            with case(change, method):
                assert paper.number({**homo_settings, **change}, method) is None

    def test_several_architectures_are_table_1(self, paper_settings):
        assert paper.number(paper_settings, "kt_pfl").value == 75.6
        assert paper.number(paper_settings, "fedavg") is None

    def test_its_setting(self, homo_settings):
        assert not paper.differences(homo_settings)
        assert not paper.differences({**homo_settings, "clients": 100, "participation": 0.1})

    def test_another_setting_is_named(self, homo_settings):
        for change, words in (
            ({"clients": 100}, "participation 1.0 instead of 0.1"),
            ({"clients": 8}, "clients 8 instead of 20 or 100"),
            ({"architectures": ["cnn"]}, "networks cnn instead of mcmahan_cnn"),
            ({"training": {"epochs": 4}}, "training.epochs 4 instead of 20"),
            ({"partition": {"scheme": "two_labels"}}, "partition.scheme two_labels instead of all_labels or lognormal"),
            ({"public": {"source": "open_part", "share": 0.05}}, "unused public part 5 % instead of none"),
            ({"private": {"source": "digits"}}, "private data digits instead of EMNIST or Fashion-MNIST or CIFAR-10"),
        ):
            with case(change):
                assert paper.differences({**homo_settings, **change}) == [words]
