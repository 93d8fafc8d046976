"""FedBN: FedAvg in which every client keeps its own batch normalization.

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
    """FedBN (Li et al., 2021): batch normalization stays on the client.

    With a model without batch normalization, FedBN equals FedAvg.
    """

    title = "FedBN"
    covered = True

    def own_names(self, fed: Federation) -> Iterable[str]:
        """Return the names of BatchNorm's weights, biases and running statistics."""
        modules = fed.outline(fed.architecture).named_modules()
        layers = [(name, layer) for name, layer in modules if isinstance(layer, _BatchNorm)]
        return [f"{name}.{key}" for name, layer in layers for key in layer.state_dict()]
