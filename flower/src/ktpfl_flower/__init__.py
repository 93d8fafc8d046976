"""Methods of ktpfl_pipeline on real clients, by Flower: each client keeps its samples and model on its own machine.

``client`` is what a client runs; it needs torch, torchvision, numpy and the packages that Flower brings. ``server``
needs all of ktpfl_pipeline. All other modules are for both. Only `apps` and `relay` import Flower.
"""
