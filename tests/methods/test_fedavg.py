"""FedAvg and its fine-tuned variant against centralized training and hand-made averages."""

import pytest
import torch
import toy
from torch.nn.functional import cross_entropy

from ktpfl_pipeline.core import engine
from ktpfl_pipeline.core.engine import Schedule
from ktpfl_pipeline.core.settings import LocalTraining
from ktpfl_pipeline.methods.fedavg import FedAvg, FedAvgFT
from ktpfl_pipeline.methods.local import Local

EVERYONE = list(toy.IDS)
SCHEDULE = Schedule(rounds=3, participation=0.6)
FULL_BATCH = LocalTraining(epochs=1, batch_size=100, learning_rate=0.1)


class TestFedAvg:
    @pytest.mark.parametrize("architecture", ["linear", "both"])
    def test_with_one_client_it_is_local_training(self, architecture: str) -> None:
        """Bit for bit, BatchNorm's statistics and dropout included."""
        run, alone = (engine.run(m, toy.alike(architecture, 1), Schedule(rounds=3)) for m in (FedAvg(), Local()))
        assert toy.same(run.state.model, alone.state.models[3])

    def test_one_full_batch_step_is_a_step_on_all_data(self) -> None:
        fed = toy.alike(dtype="float64", training=FULL_BATCH)
        after, _ = FedAvg().round(FedAvg().init(fed), EVERYONE, 1, fed)
        module = toy.build("linear").double()
        module.load_state_dict(fed.initial_model("linear"))
        images = torch.cat([client.train.inputs for client in fed.clients]).double() / 127.5 - 1.0
        cross_entropy(module(images), torch.cat([client.train.labels for client in fed.clients])).backward()
        for name, parameter in module.named_parameters():
            assert torch.allclose(after.model[name], parameter - 0.1 * parameter.grad, rtol=0, atol=1e-14)

    @pytest.mark.parametrize("cohort", [EVERYONE, [20, 3], [12]], ids=["all", "two", "one"])
    def test_weighs_clients_by_their_images(self, cohort: list[int]) -> None:
        fed = toy.alike("both", dtype="float64")
        after, report = FedAvg().round(FedAvg().init(fed), cohort, 1, fed)
        assert toy.same(report.after_local, fed.train(dict.fromkeys(cohort, fed.initial_model("both")), 1))
        sizes = {n: toy.SIZES[toy.IDS.index(n)] for n in cohort}
        for name, value in after.model.items():
            if value.is_floating_point():
                expected = sum(size * report.after_local[n][name] for n, size in sizes.items()) / sum(sizes.values())
                assert torch.allclose(value, expected, rtol=0, atol=1e-14)
        assert report.coefficients is None

    def test_without_training_nothing_moves(self) -> None:
        fed = toy.alike("both", training=LocalTraining(epochs=0))
        after, _ = FedAvg().round(FedAvg().init(fed), EVERYONE, 1, fed)
        assert toy.same(after, FedAvg().init(fed))

    def test_every_client_uses_the_common_model_unchanged(self) -> None:
        fed = toy.alike()
        after, _ = FedAvg().round(FedAvg().init(fed), [3, 7], 1, fed)
        assert toy.same(FedAvg().personal(after, [3, 20], fed), {3: after.model, 20: after.model})


class TestFineTuned:
    def test_without_epochs_it_is_fedavg(self) -> None:
        tuned, plain = (engine.run(m, toy.alike("both"), SCHEDULE) for m in (FedAvgFT(epochs=0), FedAvg()))
        assert toy.same(tuned.state, plain.state)
        assert [record.accuracy for record in tuned.history] == [record.accuracy for record in plain.history]

    def test_fine_tuned_models_are_not_fed_back(self) -> None:
        tuned, plain = (engine.run(m, toy.alike("both"), SCHEDULE) for m in (FedAvgFT(epochs=3), FedAvg()))
        assert toy.same(tuned.state, plain.state)
        assert [record.accuracy for record in tuned.history] != [record.accuracy for record in plain.history]

    def test_adapted_as_everybody_it_is_fedavg(self) -> None:
        """After one epoch in all, and not one more than its own three."""
        schedule, slow = (
            Schedule(rounds=1, adapt_epochs=(1,)),
            LocalTraining(epochs=1, batch_size=8, learning_rate=0.01),
        )
        tuned, plain = (
            engine.run(method, toy.alike(training=slow), schedule).history[-1]
            for method in (FedAvgFT(epochs=3), FedAvg())
        )
        assert tuned.accuracy["adapted_1"] == plain.accuracy["adapted_1"] != tuned.accuracy["after_transfer"]
        assert tuned.accuracy["after_transfer"] != plain.accuracy["after_transfer"]

    @pytest.mark.parametrize(("epochs", "expected"), [(None, 2), (1, 1), (5, 5)])
    def test_it_trains_the_common_model_for_the_given_epochs(self, epochs: int | None, expected: int) -> None:
        fed = toy.alike()
        state = FedAvgFT(epochs).init(fed)
        found = FedAvgFT(epochs).personal(state, EVERYONE, fed)
        assert toy.same(found, fed.fine_tune(dict.fromkeys(EVERYONE, state.model), expected))
        assert not toy.same(found[3], found[7])
