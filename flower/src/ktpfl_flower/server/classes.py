"""The classes of a run: the list that most clients have, and the clients whose lists do not fit it.

A client may lack the last classes of the list. A class that only one client has must be in the server's file, or one
client could enlarge the models of all.
"""

import json
from collections.abc import Mapping, Sequence

from ktpfl_pipeline.core.errors import plural

Lists = Mapping[int, Sequence[str]]
"""The names of the classes in the order of the labels, by client."""


def agreed(lists: Lists, given: Sequence[str]) -> list[str]:
    """Return the classes of a run: those of the server's file, `given`, or else the list that most clients fit."""
    if given or not lists:
        return list(given)
    longest = max(lists.values(), key=lambda own: (len(_fitting(lists, own)), len(own)))
    sizes = sorted(len(lists[n]) for n in _fitting(lists, longest))
    return list(longest[: sizes[-2] if len(lists) > 1 and len(sizes) > 1 else sizes[-1]])


def misfits(lists: Lists, given: Sequence[str]) -> dict[int, str]:
    """Return the clients whose lists do not fit, with the reason as the predicate of a sentence.

    If as many clients fit another list as fit the agreed one, the right one is unknown, and all are named.
    """
    common = agreed(lists, given)
    most, found = len(_fitting(lists, common)), dict[int, str]()
    tie = not given and any(
        len(_fitting(lists, own)) >= most and not _is_start(own, common) and not _is_start(common, own)
        for own in lists.values()
    )
    for n, own in lists.items():
        fixed = given or list(own) == list(map(str, range(len(own))))  # its source has no names
        whole = common if fixed else [*common, *(name for name in own if name not in common)]
        shown = f"class_names: {json.dumps(whole, ensure_ascii=False)}"  # YAML reads it as names
        others = "the server's file uses" if given else f"{most} of {plural(len(lists), 'client')} use"
        wrong = next((label for label, pair in enumerate(zip(common, own, strict=False)) if pair[0] != pair[1]), None)
        if wrong is not None:
            where = "its file" if len(whole) == len(common) else "the files of all clients"
            found[n] = (
                f"uses label {wrong} for {own[wrong]!r}, but {others} it for {common[wrong]!r}. Put this list into "
                f"{where}: {shown}."
            )
        elif len(own) > len(common):
            found[n] = (
                f"has {plural(len(own), 'class')}, but {'the server file has no' if given else 'no other client has'} "
                f"label {len(common)} ({own[len(common)]!r}). If its list is right, put it into the server's file as "
                "class_names."
            )
        elif tie:
            found[n] = (
                "has a list of classes that contradicts those of as many other clients. Put one list into the files of "
                f"all clients, for example {shown}."
            )
    return found


def _is_start(own: Sequence[str], whole: Sequence[str]) -> bool:
    return list(own) == list(whole[: len(own)])


def _fitting(lists: Lists, whole: Sequence[str]) -> list[int]:
    """Return the clients whose lists fit `whole`: they are its start, or it is their start."""
    return [n for n, own in lists.items() if _is_start(own, whole)]
