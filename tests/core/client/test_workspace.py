"""Modules of a workspace: one for each architecture, loaded with what is asked for."""

import toy
from torch import nn

from ktpfl_pipeline.core.client.workspace import Workspace


class TestModules:
    """A workspace keeps one module for each architecture and role."""

    fed = toy.federation(4)  # two of them linear

    def test_one_for_all_clients_of_an_architecture(self) -> None:
        space, models = Workspace(self.fed), self.fed.initial_models()
        linear = space.module(3, models[3])
        assert space.module(12, models[12]) is linear
        assert space.module("linear", models[3]) is linear
        assert space.module(7, models[7]) is not linear

    def test_another_for_another_role(self) -> None:
        space, models = Workspace(self.fed), self.fed.initial_models()
        other = {name: tensor + 1 for name, tensor in models[3].items()}
        own, common = space.module(3, models[3]), space.module("linear", other, "common")
        assert own is not common
        assert space.module(12, models[12], "common") is common
        assert space.module(3, models[3]) is own
        assert toy.same(dict(own.state_dict()), models[3])

    def test_is_loaded_with_what_is_asked_for(self) -> None:
        space, models = Workspace(self.fed), self.fed.train(self.fed.initial_models(), 1)
        for n in (3, 12, 3):
            assert toy.same(dict(space.module(n, models[n]).state_dict()), models[n])

    def test_is_built_once_and_off_the_global_generator(self) -> None:
        built: list[str] = []

        def build(name: str) -> nn.Module:
            built.append(name)
            return toy.build(name)

        models = self.fed.initial_models()
        space, before = Workspace(toy.again(self.fed, build=build)), toy.global_generators()
        for _ in range(2):
            for n, params in models.items():
                space.module(n, params)
                space.module(n, params, "common")
        assert built == ["linear", "linear", "conv", "conv", "mlp", "mlp"]
        assert toy.same(toy.global_generators(), before)
