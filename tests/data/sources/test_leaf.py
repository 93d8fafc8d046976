from hostile_federations import ANNE, BILL, leaf
from input_errors import input_error

from ktpfl_pipeline.data.sources import load


def test_a_file_and_a_folder_of_files(tmp_path):
    leaf(tmp_path / "one.json", {**BILL, **ANNE}, hierarchies=["x", "y"])
    leaf(tmp_path / "two/part_0.json", BILL)
    leaf(tmp_path / "two/part_1.json", ANNE)
    for source in ("leaf:one.json", "leaf:two"):
        samples = load(source, tmp_path)
        assert samples.names == ("anne", "bill")
        assert samples.inputs.tolist() == [[0.5, 1], [0, -2], [9, 9]]
        assert samples.labels.tolist() == [3, 0, 1]
        assert samples.owners.tolist() == [0, 0, 1]
        assert samples.test is None


def test_nested_inputs_keep_their_shape(tmp_path):
    leaf(tmp_path / "one.json", {"anne": ([[[1, 2, 3], [4, 5, 6]]], [0])})
    assert load("leaf:one.json", tmp_path).inputs.shape == (1, 2, 3)


def test_train_and_test_of_each_user(tmp_path):
    leaf(tmp_path / "data/train/all.json", {**ANNE, **BILL})
    leaf(tmp_path / "data/test/all.json", {"anne": ([[7, 7]], [2]), "bill": ([[8, 8]], [2])})
    leaf(tmp_path / "data/all_data/all.json", {"else": ([[0, 0]], [0])})
    samples = load("leaf:data", tmp_path)
    assert samples.inputs[:, 0].tolist() == [0.5, 0, 7, 9, 8]
    assert samples.test.tolist() == [False, False, True, False, True]
    assert samples.owners.tolist() == [0, 0, 0, 1, 1]


def test_a_user_has_one_name_in_both_forms_of_unicode(tmp_path):
    leaf(tmp_path / "data/train/all.json", {"Zoë": ([[1, 2]], [0])})
    leaf(tmp_path / "data/test/all.json", {"Zoe\u0308": ([[3, 4]], [1])})
    assert load("leaf:data", tmp_path).names == ("Zoë",)


def test_numbers_in_quotes_are_no_texts(tmp_path):
    leaf(tmp_path / "one.json", {"anne": ([["0.5", "-1"], ["2", "3e1"]], [0, 1])})
    with input_error("user 'anne' of", "has an 'x' with numbers in quotes: write them without quotes."):
        load("leaf:one.json", tmp_path)
    leaf(tmp_path / "two.json", {"anne": ([["7", "Mon", "NO_QUERY", "ann", "24"], ["8", "a", "b"]], [0, 1])})
    assert load("leaf:two.json", tmp_path).vocabulary.words[2:] == ("24", "b")


def test_users_in_only_one_part_are_rejected(tmp_path):
    leaf(tmp_path / "data/train/all.json", ANNE)
    with input_error("only one of the folders 'train' and 'test'", "or name"):
        load("leaf:data", tmp_path)
    leaf(tmp_path / "data/test/all.json", BILL)
    with input_error("user 'anne' in only one of train and test", "-t sample"):
        load("leaf:data", tmp_path)


def test_a_user_in_two_files_is_refused(tmp_path):
    leaf(tmp_path / "data/a.json", ANNE)
    leaf(tmp_path / "data/b.json", ANNE)
    with input_error("b.json has user 'anne', but another file has", "into one file"):
        load("leaf:data", tmp_path)
