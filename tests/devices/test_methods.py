"""Every method on a device, by executor and precision: equal to the CPU, all there, and nobody waits for long.

One run is looked at in all ways: its numbers, what draws, which products are taken in what, how often the host waits.
Methods take turns with the executors and precisions: each meets one of each, KT-pFL and FedAvg all of them with all;
with ``--all-ways`` every method does.
"""

import devices
import pretend
import pytest
import torch

from ktpfl_pipeline.methods import ANY_ARCHITECTURES, METHODS

WAITS = {
    "kt_pfl": 10,
    "kt_pfl_joint": 11,
    "kt_pfl_likelihood": 14,
    "kt_pfl_paper_literal": 10,
    "kt_pfl_authors": 10,
    "sim_pfl": 10,
    "topk_pfl": 10,
    "fedmd": 10,
    "feddf": 10,
    "feddf_soft": 10,
    "pfeddf": 11,
    "ds_fl": 10,
    "comet": 14,
    "fd": 4,
    "fedproto": 9,
    "fedtgp": 24,
    "lg_fedavg": 2,
    "fedgh": 14,
    "fedgen": 6,
    "fml": 2,
    "fedkd": 12,
    "fedkd_summed": 12,
    "fedmrl": 2,
    "local": 2,
    "scarlet": 14,
    "selective_fd": 20,
    "local_matched": 2,
    "kt_pfl_params": 6,
    "fedavg": 2,
    "fedavg_ft": 3,
    "per_fedavg": 3,
    "per_fedavg_hf": 3,
    "pfedme": 2,
    "fedamp": 5,
    "heur_fedamp": 5,
    "fedfomo": 11,
    "pfedhn": 6,
    "ditto": 4,
    "fedrep": 4,
    "apple": 2,
    "fedper": 2,
    "fedbn": 2,
    "fedbabu": 2,
    "apfl": 5,
    "fedala": 5,
    "fedrod": 2,
    "pfedgraph": 6,
    "local_5x": 2,
}
"""How often the host waits in the whole run, from the initial models to the personal ones."""
MOST = 2 * 5 * devices.COHORT  # five a client and round, of a method that is new
PLAIN = (
    "apfl",
    "apfl_adaptive",
    "apple",
    "fedcp",
    "feddbe",
    "fedgen",
    "fedgh",
    "fedkd",
    "fedkd_summed",
    "fedmrl",
    "fedproto",
    "fedre",
    "fedrod",
    "gpfl",
    "lg_fedavg",
    "pfedgraph",
    "pfedhn",
)
"""Methods with products of their own, beside the models', that stay in float32 where bfloat16 is asked for."""

IN_ALL_WAYS = ("kt_pfl", "fedavg")


def ways(place: int, name: str) -> list[str]:
    """Return the precisions whose turn it is, of the method at a place of `METHODS`.

    Neighbours there are alike, so that of three the last has met what the first has not. `PLAIN` says something of
    bfloat16 alone, and so its methods meet that.
    """
    if name in IN_ALL_WAYS:
        return [*devices.PRECISIONS]
    precision = "bfloat16" if name in PLAIN else devices.PRECISIONS[place % len(devices.PRECISIONS)]
    return [precision]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Let methods take turns, and with ``--all-ways`` each of them meet every way."""
    if {"name", "precision"} <= {*metafunc.fixturenames}:
        all_ways = metafunc.config.getoption("--all-ways")
        listed = [
            (name, precision)
            for place, name in enumerate(METHODS)
            for precision in (devices.PRECISIONS if all_ways else ways(place, name))
        ]
        metafunc.parametrize(("name", "precision"), listed)


def test_both_kinds_of_methods_meet_every_way() -> None:
    """Those that take any architectures and those that need one, whoever is new among them."""
    turns = {
        (name in ANY_ARCHITECTURES, precision)
        for place, name in enumerate(METHODS)
        if name not in IN_ALL_WAYS
        for precision in ways(place, name)
    }
    assert turns == {(kind, precision) for kind in (True, False) for precision in devices.PRECISIONS}


def test_a_run_there_equals_one_on_the_cpu(device: devices.Device, name: str, precision: str) -> None:
    """Channels last go with TF32 on the pretended device, which rounds nothing."""
    dropout = not device.real
    asked = "TF32, channels last" if precision == "channels last" and not device.real else precision
    expected = devices.rounds(name, devices.federation(name, "cpu", precision, dropout=dropout))
    with device.there() as seen:
        before = torch.cuda.get_rng_state().clone()
        found = devices.rounds(name, devices.federation(name, devices.GPU, asked, dropout=dropout))
        assert torch.equal(torch.cuda.get_rng_state(), before)  # nothing was taken from other users of it
    device.check_equal(found, expected, precision)
    assert not seen.draws[False]  # nothing was drawn there before it was seeded
    assert seen.waits <= WAITS.get(name, MOST), seen.places
    check_products(seen, name, asked)


def check_products(seen: pretend.Counts, name: str, precision: str) -> None:
    """Check that models' products are as asked for, the server's so or in float64, and TF32 only if it was."""
    own = torch.bfloat16 if precision == "bfloat16" else torch.float32
    others = {torch.float64, torch.float32 if name in PLAIN else own}
    for (operation, types, allowed), times in seen.products.items():
        assert allowed == ("TF32" in precision), (operation, times)
        assert len(types) == 1
        assert types[0] == own or (types[0] in others and not operation.startswith("convolution")), (operation, times)
