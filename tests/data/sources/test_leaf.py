import json
from typing import Any

import pytest
from input_errors import input_error

from ktpfl_pipeline.data.sources import load


def write(path, users: dict[str, tuple[list[Any], list[Any]]], /, **others: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    data = {user: {"x": x, "y": y} for user, (x, y) in users.items()}
    content = {"users": [*users], "num_samples": [len(y) for _, y in users.values()], "user_data": data, **others}
    path.write_text(json.dumps(content))


ANNE = {"anne": ([[0.5, 1], [0, -2]], [3, 0])}
BILL = {"bill": ([[9, 9]], [1])}


def test_a_file_and_a_folder_of_files(tmp_path):
    write(tmp_path / "one.json", {**BILL, **ANNE}, hierarchies=["x", "y"])
    write(tmp_path / "two/part_0.json", BILL)
    write(tmp_path / "two/part_1.json", ANNE)
    for source in ("leaf:one.json", "leaf:two"):
        samples = load(source, tmp_path)
        assert samples.names == ("anne", "bill")
        assert samples.inputs.tolist() == [[0.5, 1], [0, -2], [9, 9]]
        assert samples.labels.tolist() == [3, 0, 1]
        assert samples.owners.tolist() == [0, 0, 1]
        assert samples.test is None


def test_nested_inputs_keep_their_shape(tmp_path):
    write(tmp_path / "one.json", {"anne": ([[[1, 2, 3], [4, 5, 6]]], [0])})
    assert load("leaf:one.json", tmp_path).inputs.shape == (1, 2, 3)


def test_train_and_test_of_each_user(tmp_path):
    write(tmp_path / "data/train/all.json", {**ANNE, **BILL})
    write(tmp_path / "data/test/all.json", {"anne": ([[7, 7]], [2]), "bill": ([[8, 8]], [2])})
    write(tmp_path / "data/all_data/all.json", {"else": ([[0, 0]], [0])})
    samples = load("leaf:data", tmp_path)
    assert samples.inputs[:, 0].tolist() == [0.5, 0, 7, 9, 8]
    assert samples.test.tolist() == [False, False, True, False, True]
    assert samples.owners.tolist() == [0, 0, 0, 1, 1]


def test_users_who_are_in_one_part_alone_are_refused(tmp_path):
    write(tmp_path / "data/train/all.json", ANNE)
    with input_error("only one of the folders 'train' and 'test'", "or name"):
        load("leaf:data", tmp_path)
    write(tmp_path / "data/test/all.json", BILL)
    with input_error("user 'anne' in only one of train and test", "-t sample"):
        load("leaf:data", tmp_path)


def test_a_user_in_two_files_is_refused(tmp_path):
    write(tmp_path / "data/a.json", ANNE)
    write(tmp_path / "data/b.json", ANNE)
    with input_error("b.json has user 'anne', as another file has", "in one file"):
        load("leaf:data", tmp_path)


@pytest.mark.parametrize(
    ("users", "others", "words"),
    [
        ({}, {}, ("is no file of LEAF", "'users'")),
        (ANNE, {"users": ["anne", "bill"]}, ("other users in 'users' than in 'user_data'",)),
        (ANNE, {"users": ["anne", "anne"], "num_samples": None}, ("or one twice",)),
        (ANNE, {"users": [7]}, ("is no file of LEAF",)),
        (ANNE, {"users": [[["anne"]]]}, ("is no file of LEAF",)),
        (ANNE, {"num_samples": [3]}, ("other 'num_samples' than users have labels",)),
        ({"": ([[1]], [0])}, {}, ("a client named ''",)),
        ({"anne": ([], [])}, {}, ("user 'anne' of", "has no samples", "leave the user out")),
        ({"anne": ([[1], [2]], [0])}, {}, ("has 2 inputs and 1 labels",)),
        ({"anne": ([[1, 2], [3]], [0, 1])}, {}, ("no list of numbers per sample", "inhomogeneous")),
        ({"anne": ([["a", "b"]], [0])}, {}, ("'x' that is no list", "text and names of files cannot be read")),
        ({"anne": (["once upon a time"], [0])}, {}, ("'x' that is no list", "text")),
        ({"anne": ([1, 2], [0, 1])}, {}, ("'x' of shape (2,)",)),
        ({"anne": ([[]], [0])}, {}, ("'x' of shape (1, 0)",)),
        ({"anne": ([[[[[1]]]]], [0])}, {}, ("'x' of shape (1, 1, 1, 1, 1)",)),
        ({"anne": ([[1], [float("nan")]], [0, 1])}, {}, ("user 'anne' of", "has nan in row 1")),
        ({"anne": ([[1], [None]], [0, 1])}, {}, ("has nan in row 1",)),
        ({"anne": ([[10**400]], [0])}, {}, ("'x' that is no list",)),
        ({"anne": ([[1e60]], [0])}, {}, ("has inf in row 0",)),
        ({"anne": ([[{}]], [0])}, {}, ("'x' that is no list",)),
        ({"anne": ([[1]], [-1])}, {}, ("no class numbers from 0 to 9999",)),
        ({"anne": ([[1]], [1.5])}, {}, ("no class numbers",)),
        ({"anne": ([[1]], ["a"])}, {}, ("no class numbers",)),
        ({"anne": ([[1]], [True])}, {}, ("no class numbers",)),
        ({**BILL, "anne": ([[1]], [0])}, {}, ("inputs of shape (1,) and, of user 'bill', of (2,)", "one shape")),
        (ANNE, {"user_data": {"anne": [1]}}, ("has no samples",)),
        (ANNE, {"user_data": {"anne": {"x": "text", "y": [1]}}}, ("has no samples",)),
    ],
)
def test_what_cannot_be_read_is_an_input_error(tmp_path, users, others, words):
    write(tmp_path / "bad.json", users, **others)
    with input_error(*words) as caught:
        load("leaf:bad.json", tmp_path)
    assert "bad.json" in str(caught.value)
