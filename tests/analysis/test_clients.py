"""Whether training was long enough."""

import pytest

from ktpfl_pipeline.analysis.clients import gain
from ktpfl_pipeline.analysis.comparison import Comparison
from ktpfl_pipeline.analysis.results import summarize


@pytest.fixture
def local(run):
    """Return local-only with these mean accuracies by round, one list a seed."""

    def made(*by_seed):
        runs = [run("local", seed, [(mean - 0.1, mean + 0.1) for mean in means]) for seed, means in enumerate(by_seed)]
        return summarize(runs, {})

    return made


class TestGain:
    def test_rising(self, local):
        """Of seven rounds the last five count: (0.78 + 0.80) / 2 - (0.70 + 0.73) / 2."""
        found = gain(local([0.3, 0.5, 0.70, 0.73, 0.75, 0.78, 0.80]))
        assert found.difference.mean == pytest.approx(0.075)
        assert (found.first, found.last, found.half, found.goes_on) == (3, 7, 2, True)

    def test_flat_after_a_rise(self, local):
        found = gain(local([0.3, 0.5, 0.8, 0.801, 0.8, 0.799, 0.804]))
        assert found.difference.mean == pytest.approx(0.001)
        assert not found.goes_on

    def test_falling(self, local):
        assert not gain(local([0.8, 0.7, 0.6])).goes_on

    def test_the_seeds_must_agree(self, local):
        """Gains of 10, -2 and -2 points: 2 ± 17; of 3, 2 and 2.5 points: 2.5 ± 1.2."""
        noisy = gain(local([0.5, 0.6], [0.5, 0.48], [0.5, 0.48]))
        assert noisy.difference.mean == pytest.approx(0.02)
        assert not noisy.goes_on
        assert gain(local([0.5, 0.53], [0.5, 0.52], [0.5, 0.525])).goes_on

    def test_one_evaluation_says_nothing(self, local):
        assert gain(local([0.5])) is None

    def test_the_same_from_what_the_overview_reads(self, local):
        made = local([0.3, 0.5, 0.70, 0.73, 0.75, 0.78, 0.80])
        (read,) = Comparison.from_dict(Comparison([made]).to_dict("x"))
        assert gain(read) == gain(made)

    def test_only_evaluations_that_count_in_the_final_value(self, run):
        """With one of two clients in the first two rounds, the last two rounds count: 0.8 - 0.6."""
        made = run("local", 0, [(mean, mean) for mean in (0.1, 0.2, 0.6, 0.8)])
        for record in made.history[:2]:
            record.cohort.pop()
        found = gain(summarize([made], {}))
        assert (found.difference.mean, found.first) == (pytest.approx(0.2), 3)
