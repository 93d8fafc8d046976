"""How predictions are sent: which ones, in which encoding, and with which caches at both ends.

- `encodings`: the decoded values of each encoding, and the bytes that it takes.
- `channel`: the transfer of one client's predictions in a round, with its cache and its error feedback.
"""
