"""How predictions travel: which of them, in which encoding, and what both ends remember of those that did.

- `settings`: what an experiment says of it.
- `encodings`: from numbers to bytes and back.
- `channel`: one client's predictions of a round on their way, with its cache and its error feedback.
"""
