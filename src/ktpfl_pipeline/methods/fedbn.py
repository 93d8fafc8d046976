"""FedBN: FedAvg in which every client keeps its own batch normalisation.

Li, Jiang, Zhang, Kamp, Dou: FedBN: Federated Learning on Non-IID Features via Local Batch Normalization, ICLR 2021,
Algorithm 1, https://arxiv.org/abs/2102.07623
"""

from collections.abc import Iterable
from dataclasses import dataclass

from torch.nn.modules.batchnorm import _BatchNorm

from ktpfl_pipeline.core.federation import Federation
from ktpfl_pipeline.methods.shared.parts import PartlyShared


@dataclass(frozen=True)
class FedBN(PartlyShared):
    """Key idea: what normalises a client's features is the client's own.

    With a model that has no batch normalisation it is FedAvg.
    """

    title = "FedBN"

    def own_names(self, fed: Federation) -> Iterable[str]:
        """Return those of the layers' weights, biases and running statistics."""
        modules = fed.outline(fed.architecture).named_modules()
        layers = [(name, layer) for name, layer in modules if isinstance(layer, _BatchNorm)]
        return [f"{name}.{key}" for name, layer in layers for key in layer.state_dict()]
