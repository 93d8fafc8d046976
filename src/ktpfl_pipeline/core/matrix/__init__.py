"""The knowledge coefficient matrix c of KT-pFL (Zhang et al., NeurIPS 2021), and its operations.

Legend: N clients (of the cohort), B public samples, K classes. Row = student: ``c[n, m]`` is the weight of client m's
prediction in the teacher of client n (the transpose of the paper's c_mn), and every row is a distribution. All
functions are pure, take and return float64, and run where their tensors are. docs/kt_pfl.md derives the gradients.
"""

TINY = 1e-12  # lower bound of divisors and of probabilities inside logarithms
