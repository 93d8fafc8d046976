"""The server's file, and whether the clients that are there go together."""

import pytest
import yaml
from real_clients import NoLink, deal_out

from ktpfl_pipeline.core.errors import InputError
from ktpfl_pipeline.flower import serve


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"method": "fedper"}, "method 'fedper' was not tried on real clients: choose from kt_pfl"),
        ({"round": 3}, "There is no setting 'round'"),
        ({"public": {"source": "open_part"}}, "the server has no private images"),
        ({"public": {"source": "npz:public.npz", "batch": 41}}, "41"),
        ({"training": {"privacy": {"noise_multiplier": 1.0}}}, "protects nobody"),
        ({"clients": None}, "clients"),
        ({"privacy": 1}, "There is no setting 'privacy'"),
    ],
)
def test_a_file_that_cannot_be_used_is_told_of(tmp_path, changes, sentence):
    files = deal_out(tmp_path, **{"method": "kt_pfl", "architectures": ("mlp",) * 2, "rounds": 1, **changes})
    with pytest.raises(InputError, match=sentence):
        serve.run(tmp_path / "federation.yml", NoLink(files))


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"client": 0}, "have one number"),
        ({"versions": {"torch": "1.0"}}, "install the same"),
        ({"shape": [1, 9, 9]}, "set its image"),
        ({"sizes": [1, 2]}, "sizes"),
        ({"password": "x"}, "There is no setting 'password'"),
    ],
)
def test_clients_that_do_not_go_together_are_told_of(tmp_path, values, sentence):
    def changes(kind, n, answer):
        return type(answer)({**answer.values, **values}) if kind == "hello" and n == 1 else answer

    link = NoLink(deal_out(tmp_path, "kt_pfl", ("mlp",) * 2, 1), changes=changes)
    with pytest.raises(InputError, match=sentence):
        serve.run(tmp_path / "federation.yml", link)


def test_a_public_set_of_another_size_is_refused_by_the_client(tmp_path):
    files = deal_out(tmp_path, "kt_pfl", ("mlp",) * 2, 1, image={"channels": 1, "size": 12})
    with pytest.raises(InputError, match=r"Client \d refused begin: the public set has .*12, 12"):
        serve.run(tmp_path / "federation.yml", NoLink(files))


def test_too_few_clients_are_told_with_the_settings_of_either_file(tmp_path):
    files = deal_out(tmp_path, "kt_pfl", ("mlp",) * 2, 1)
    told = (
        r"^1 clients were there within 0.01 s, and clients is 2, .* or the experiment: .* compute\.flower\.patience\.$"
    )
    with pytest.raises(InputError, match=told):
        serve.run(tmp_path / "federation.yml", NoLink(files[:1]), 0.01)


def test_what_happens_is_written_while_it_does(tmp_path):
    serve.run(tmp_path / "federation.yml", NoLink(deal_out(tmp_path, "kt_pfl", ("mlp",) * 2, 2)))
    written = yaml.safe_load((tmp_path / "results" / "history.json").read_text())
    assert [record["round"] for record in written["history"]] == [1, 2]
    assert all(written["wire"]["received"][n] > 2 * record for n, record in zip("01", [1200, 1200], strict=True))
    assert len(yaml.safe_load((tmp_path / "results" / "coefficients.json").read_text())) == 2
