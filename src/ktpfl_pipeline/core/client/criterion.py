"""The cross-entropy of a client's private samples, with label smoothing and class weights.

With `training.class_weights: balanced` a sample of class k has the weight D_n / (K_n · D_n,k) in client n's local
training. D_n is its number of training samples, D_n,k its number of samples of class k, and K_n its number of classes.
So all its classes count equally, and the mean weight over its training samples is 1. The loss of a batch is the
weighted mean over the batch, Σ w ℓ / Σ w. With label smoothing, the part of ℓ that is spread over all classes has the
weight of each class instead, as in torch. Weights come only from the client's own training labels, and evaluation uses
none.

This criterion applies to every cross-entropy of local training, including common heads and second models. It does not
apply to losses that are not a cross-entropy on private labels (distances to prototypes, distillation), to training on
the server, or to FedRoD's balanced softmax, which weights classes by its own prior.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from ktpfl_pipeline.core.settings import LocalTraining
from ktpfl_pipeline.core.transfer import sent


class Criterion:
    """The cross-entropy of one workspace's clients, one after another."""

    def __init__(self, training: LocalTraining, classes: int, device: torch.device, dtype: torch.dtype) -> None:
        """Start with equal class weights, or none if the settings do not ask for them."""
        self.smoothing = training.label_smoothing  # ε of label smoothing
        balanced = training.class_weights == "balanced"
        # (K,) class weights, written in place for each client; None without class weights
        self.weights = torch.ones(classes, device=device, dtype=dtype) if balanced else None

    def follow(self, labels: Tensor) -> None:
        """Use the class weights of the client with these training labels, (D_n,)."""
        if self.weights is not None:
            self.weights.copy_(sent(balanced(labels, len(self.weights)), self.weights.device))

    def __call__(self, logits: Tensor, labels: Tensor, reduction: str = "mean") -> Tensor:
        """Return the cross-entropy, (), of logits, (b, K), with labels, (b,); `reduction` is ``mean`` or ``sum``."""
        return F.cross_entropy(logits, labels, weight=self.weights, reduction=reduction, label_smoothing=self.smoothing)


def balanced(labels: Tensor, classes: int) -> Tensor:
    """Return D_n / (K_n · D_n,k) for each of K classes, (K,) float64; 0 for a class without samples."""
    counts = F.one_hot(labels, classes).sum(dim=0).double()  # `bincount` would wait for a GPU
    weights = counts.sum() / ((counts > 0).sum() * counts.clamp_min(1.0))
    return torch.where(counts > 0, weights, 0.0)
