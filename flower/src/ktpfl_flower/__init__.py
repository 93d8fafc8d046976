"""Methods of ktpfl_pipeline on real clients, by Flower: each client keeps its samples and model on its own machine.

``client`` is what a client runs; it needs torch, torchvision, numpy and the packages that Flower brings. ``server``
needs all of ktpfl_pipeline. The modules beside these two are for both ends. Only `apps` and `relay` use Flower.
"""
