"""The same experiment on real clients, by Flower: each keeps its own data and its own model on its own machine.

`wire`, `operations`, `member` and `client_file` are what a client runs, with torch, torchvision, numpy and what Flower
brings; `executor` and `serve` are the server's. Only `app` and `join` know of Flower.
"""
