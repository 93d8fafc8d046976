"""How predictions are sent: which ones, in which encoding, and with which caches at both ends.

- `encodings`: what arrives of numbers, and in how many bytes.
- `channel`: the transfer of one client's predictions in a round, with its cache and its error feedback.
"""
