"""Who is drawn for a round."""

from collections import Counter

import torch
import toy

from ktpfl_pipeline.core import engine
from ktpfl_pipeline.core.engine import Schedule
from ktpfl_pipeline.core.rounds import cohort
from ktpfl_pipeline.core.settings import Reliability, Stragglers
from ktpfl_pipeline.methods.fedavg import FedAvg
from ktpfl_pipeline.methods.fedmd import FedMD
from ktpfl_pipeline.methods.local import Local


def test_size() -> None:
    """max(1, round(r N)), Python's round: 0.5 x 5 = 2.5 gives 2."""
    fed = toy.federation()
    for share, size in {1.0: 5, 0.8: 4, 0.6: 3, 0.5: 2, 0.3: 2, 0.2: 1, 0.1: 1, 0.0: 1}.items():
        for t in range(1, 6):
            drawn = cohort.sample(fed, share, t)
            assert len(drawn) == len(set(drawn)) == size, share
            assert drawn == sorted(drawn)
            assert set(drawn) <= set(toy.IDS)


def test_is_drawn_from_the_stream_of_its_name() -> None:
    fed = toy.federation()
    for t in range(1, 6):
        chosen = torch.randperm(5, generator=fed.stream("cohort", t))[:3].tolist()
        assert cohort.sample(fed, 0.6, t) == sorted(toy.IDS[row] for row in chosen)


def test_nothing_else_moves_it() -> None:
    """Not what ran before, no global seed and no other setting."""
    fed = toy.federation()
    cohorts = [cohort.sample(fed, 0.6, t) for t in range(1, 9)]
    torch.manual_seed(123)
    other = toy.federation(dtype="float64", architectures=("mlp",))
    other.train(other.initial_models(), 1)
    assert [cohort.sample(other, 0.6, t) for t in reversed(range(1, 9))] == cohorts[::-1]
    assert len({tuple(each) for each in cohorts}) > 3
    assert [cohort.sample(toy.federation(seed=1), 0.6, t) for t in range(1, 9)] != cohorts


def test_uniform() -> None:
    fed = toy.federation()
    count = Counter(n for t in range(1, 501) for n in cohort.sample(fed, 0.4, t))
    assert all(150 < count[n] < 250 for n in toy.IDS)  # 200 expected, standard deviation 11


def test_the_same_for_every_method() -> None:
    once = Schedule(rounds=3, participation=0.6, evaluate_every=3)
    cohorts = [[r.cohort for r in engine.run(m, toy.federation(), once).history] for m in (Local(), FedMD())]
    assert cohorts[0] == cohorts[1] == [cohort.sample(toy.federation(), 0.6, t) for t in range(1, 4)]


def test_stragglers_wait_for_their_last_upload() -> None:
    feds = {delay: toy.federation(reliability=Reliability(stragglers=Stragglers(0.4, delay))) for delay in (1, 2)}
    one, two = feds[2].straggler_ids
    rest = [n for n in toy.IDS if n != one]
    before = [[one, two], [one], rest[:1]]
    assert cohort.turnout(FedAvg(), list(toy.IDS), 4, feds[2], before) == (rest, [], [one])
    assert cohort.turnout(FedAvg(), list(toy.IDS), 1, feds[1], []) == (list(toy.IDS), [], [])
