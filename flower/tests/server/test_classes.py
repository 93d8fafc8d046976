"""The list of classes that clients agree on."""

import pytest

from ktpfl_flower.server.classes import agreed, misfits


@pytest.mark.parametrize(
    ("lists", "given", "common", "odd"),
    [
        (["abc"], "", "abc", []),
        (["abc", "abc"], "", "abc", []),
        (["abc", "ab", "abc"], "", "abc", []),
        (["abc", "abc", "acb"], "", "abc", [2]),
        (["abc", "ab"], "", "ab", [0]),
        (["abc", "ab", "a"], "", "ab", [0]),
        (["abc", "abc", "abcdefgh"], "", "abc", [2]),
        (["abc", "acb"], "", "abc", [0, 1]),
        (["abc", "abc", "acb", "acb"], "", "abc", [0, 1, 2, 3]),
        (["abc", "ab"], "abc", "abc", []),
        (["abc", "acb", "acb"], "abc", "abc", [1, 2]),
        (["abcd", "abcd"], "abc", "abc", [0, 1]),
    ],
)
def test_the_list_that_most_clients_fit_and_who_does_not(lists, given, common, odd):
    named = {n: list(own) for n, own in enumerate(lists)}
    assert agreed(named, list(given)) == list(common)
    assert list(misfits(named, list(given))) == odd


def test_names_that_others_lack_go_into_all_files_and_numbers_into_none():
    new = misfits({0: [*"abc"], 1: [*"abc"], 2: [*"axbc"]}, [])[2]
    assert new.endswith('into the files of all clients: class_names: ["a", "b", "c", "x"].')
    assert misfits({0: [*"abc"], 1: [*"abc"], 2: [*"012"]}, [])[2].endswith('its file: class_names: ["a", "b", "c"].')
