"""From settings to the table of who owns what, and to the federation's data."""

import re
from typing import Any

import numpy as np
import pytest
import torch
from experiment import changed

from ktpfl_pipeline.config.parsing import parse
from ktpfl_pipeline.core.errors import InputError
from ktpfl_pipeline.data.federated import PublicSet
from ktpfl_pipeline.data.owned import OwnedDataset
from ktpfl_pipeline.runs.preparation import partition_clients, prepare

IMAGES = torch.randint(0, 256, (90, 1, 4, 4), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
PRIVATE = OwnedDataset(IMAGES, torch.arange(90) % 3, torch.arange(90) // 30, ("ann", "bo", "cy"))
PUBLIC = PublicSet(IMAGES, {0: torch.arange(0, 90, 3), 1: torch.arange(0, 90, 3)})


def experiment(clients: int | None, **partition: Any):
    return parse("mine", changed("partition", partition) | {"clients": clients, "seeds": [0, 1]})


def test_owners_stand_in_the_table_and_in_the_data(tmp_path):
    asked = experiment(2, scheme="natural")
    data, table = partition_clients(asked, PRIVATE, PUBLIC, tmp_path)
    assert set(zip(table["owner"], table["index"] // 30, strict=True)) <= {("ann", 0), ("bo", 1), ("cy", 2)}
    assert not set(table["index"]) & set(range(0, 90, 3))  # the open part is nobody's
    for seed, own in data.seeds.items():
        assert len(own.names) == 2
        of_seed = table[table["seed"] == seed].sort_values("client")
        assert list(own.names) == list(dict.fromkeys(of_seed["owner"]))


def test_a_scheme_that_deals_has_no_owners(tmp_path):
    asked = experiment(3, scheme="iid", feature_skew="noise", feature_levels=3)
    data, table = partition_clients(asked, PRIVATE, PUBLIC, tmp_path)
    assert "owner" not in table
    assert data.seeds[0].names == ()
    assert data.seeds[1].skew == ("noise", 3, 1)


@pytest.mark.parametrize("scheme", ["iid", "natural"])
def test_the_table_is_what_the_clients_have(tmp_path, scheme):
    data, table = partition_clients(experiment(3, scheme=scheme, test_share=0.5), PRIVATE, PUBLIC, tmp_path)
    rows = {tuple(row) for row in table[["seed", "client", "split", "index", "label"]].itertuples(index=False)}
    assert rows == {
        (seed, client, split, index, index % 3)
        for seed, clients in data.partitions.items()
        for client, own in clients.items()
        for split, indices in own._asdict().items()
        for index in indices.tolist()
    }


def test_what_does_not_fit_is_refused_before_anything_is_dealt(tmp_path):
    with pytest.raises(InputError, match=re.escape("feature_skew is color, which RGB images can have")):
        partition_clients(experiment(3, scheme="iid", feature_skew="color"), PRIVATE, PUBLIC, tmp_path)
    with pytest.raises(InputError, match="a federation of 4 clients is not possible: the source has 3 of them"):
        partition_clients(experiment(4, scheme="natural"), PRIVATE, PUBLIC, tmp_path)
    _, table = partition_clients(experiment(None, scheme="natural"), PRIVATE, PUBLIC, tmp_path)
    assert len(set(table["client"])) == 3


def test_texts_that_are_read_otherwise_are_read_again(tmp_path):
    """A sweep over ``text.length`` gives the same dict for all its points."""
    (tmp_path / "mine.csv").write_text("text,label\n" + "".join(f"{n} one two three,{n % 2}\n" for n in range(40)))
    source = changed("private", {"source": "text:mine.csv"}) | {"public": {"batch": 4}, "image": None}
    asked = [parse("mine", source | {"clients": 2, "text": {"length": length}}) for length in (2, 4)]
    loaded = {}
    assert [prepare(each, tmp_path, loaded).private.shape for each in asked] == [(2,), (4,)]


def test_owners_are_asked_for_where_another_scheme_read_the_samples_before(tmp_path):
    """A sweep over ``partition.scheme`` gives the same dict for all its points."""
    loaded, asked = {}, [parse("mine", changed("partition", {"scheme": scheme})) for scheme in ("iid", "natural")]
    prepare(asked[0], tmp_path, loaded)
    with pytest.raises(InputError, match=r"partition\.scheme is natural, and the samples of .* have no owners"):
        prepare(asked[1], tmp_path, loaded)


def test_public_ids_outside_the_private_vocabulary(tmp_path):
    ids, labels = np.arange(200).reshape(40, 5) % 9, np.arange(40) % 2
    np.savez(tmp_path / "mine.npz", tokens=ids, labels=labels)
    np.savez(tmp_path / "other.npz", tokens=ids + 1, labels=labels)
    source = changed("private", {"source": "npz:mine.npz"}) | {"image": None, "clients": 2}
    asked = parse("mine", source | {"public": {"source": "npz:other.npz", "batch": 4}})
    with pytest.raises(InputError, match=r"the public source 'npz:other.npz' has the id 9 in row 1, place 3"):
        prepare(asked, tmp_path)
