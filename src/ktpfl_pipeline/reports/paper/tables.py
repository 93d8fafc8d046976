"""All numbers of Tables 1 to 6 of the KT-pFL paper, copied from its LaTeX source (arXiv 2111.02862).

Zhang, Guo, Ma, Wang, Xu, Wu: Parameterized Knowledge Transfer for Personalized Federated Learning, NeurIPS 2021.
Test accuracies in percent, means over clients. Each table is a text: its columns in the first lines, then one row for
each method or dataset. Columns of Tables 3 to 6 have the labels that `conf/` gives them.
"""

from collections.abc import Mapping
from dataclasses import dataclass

TABLE_1 = """
              | emnist                 | fashion_mnist          | cifar10
              | all_labels  two_labels | all_labels  two_labels | all_labels  two_labels
FedMD         | 71.37       70.15      | 68.02       66.10      | 39.14       35.56
FedDF         | 71.92       72.79      | 70.32       70.83      | 40.19       37.81
pFedDF        | 78.59       75.72      | 72.69       73.45      | 42.83       39.54
Sim-pFL       | 82.72       74.42      | 72.82       72.71      | 42.50       39.90
TopK-pFL      | 83.00       73.91      | 72.24       73.39      | 42.58       39.34
KT-pFL        | 84.65       76.30      | 75.48       75.60      | 43.82       41.04
"""
"""Several architectures. Non-IID_1 is ``all_labels`` and Non-IID_2 ``two_labels``, by the captions of Figures 2 and 3.

The paper writes Sim-pFD and TopK-pFD in the table, and Sim-pFL and TopK-pFL in the text.
"""
TABLE_2 = """
                | emnist       | fashion_mnist | cifar10
                | 20     100   | 20     100    | 20     100
FedAvg          | 85.86  76.84 | 80.69  72.36  | 51.94  43.56
Per-FedAvg      | 86.16  82.87 | 85.91  77.93  | 55.61  49.82
FedAvg-Local FT | 86.59  84.55 | 90.17  80.93  | 42.88  50.91
pFedMe          | 84.26  86.14 | 90.97  84.02  | 62.79  52.46
FedAMP          | 88.51  85.63 | 90.79  84.72  | 60.75  51.26
FedFomo         | 92.58  90.08 | 88.33  87.76  | 63.11  55.73
FedHN           | 94.27  92.21 | 92.22  89.14  | 65.31  57.38
KT-pFL          | 94.40  92.50 | 93.93  90.37  | 66.96  58.29
"""
"""One architecture, by the number of clients. With 100 clients, a tenth of the clients takes part in a round.

FedAvg-Local FT on CIFAR-10 is lower with 20 clients than with 100, and lower than FedAvg. This may be a misprint.
"""
TABLE_3 = """
              | E=5    E=10   E=15   E=20  | R=1    R=2    R=3    R=5
emnist        | 90.15  92.76  91.03  90.15 | 91.76  91.40  91.18  91.54
fashion_mnist | 88.73  89.14  88.58  89.42 | 89.14  89.90  89.07  88.08
cifar10       | 58.30  59.38  59.34  59.24 | 59.24  57.99  59.22  58.91
"""
"""KT-pFL by local epochs, and by distillation steps with E = 20.

E = 20 and R = 1 are the same setting according to the text, but their numbers are equal only for CIFAR-10.
"""
TABLE_4 = """
              | ρ=0.1  ρ=0.3  ρ=0.5  ρ=0.7
emnist        | 90.96  90.66  90.88  91.76
fashion_mnist | 89.49  89.30  89.56  89.14
cifar10       | 59.08  58.52  59.56  58.40
"""
"""KT-pFL by the regularization parameter."""
TABLE_5 = """
              | public_MNIST  public_EMNIST  an_open_part
fashion_mnist | 89.14±0.15    88.76±0.21     89.03±0.11
"""
"""KT-pFL by the public data, with the paper's numbers after ±."""
TABLE_6 = """
              | |D_r|=10  |D_r|=100  |D_r|=500  |D_r|=1000  |D_r|=3000  |D_r|=5000
emnist        | 56.19     73.44      91.25      91.47       91.66       91.32
fashion_mnist | 50.80     67.43      88.08      89.40       89.50       89.14
cifar10       | 39.08     47.70      58.93      58.79       58.91       58.40
"""
"""KT-pFL by the number of public samples per round."""


@dataclass(frozen=True)
class Cited:
    """A number of the paper."""

    value: float  # accuracy in percent
    spread: float | None = None  # the paper's number after ±, in points; None without such a number

    def __str__(self) -> str:
        return f"{self.value:.2f}" + ("" if self.spread is None else f" ± {self.spread:.2f}")


def rows(text: str) -> dict[str, list[Cited]]:
    """Return the numbers of a table by row, in the order of its columns."""
    found = {}
    for line in text.strip("\n").splitlines():
        name, *groups = line.split(" | ")
        if name.strip():
            parts = [entry.partition("±") for group in groups for entry in group.split()]
            found[name.strip()] = [Cited(float(value), float(spread) if spread else None) for value, _, spread in parts]
    return found


def by_dataset(text: str) -> dict[tuple[str, str, str], Cited]:
    """Return the numbers of Table 1 or 2 by dataset, column and method."""
    datasets, columns = (line.split(" | ")[1:] for line in text.strip("\n").splitlines()[:2])
    pairs = [(name.strip(), each) for name, group in zip(datasets, columns, strict=True) for each in group.split()]
    return {
        (dataset, column, method): number
        for method, numbers in rows(text).items()
        for (dataset, column), number in zip(pairs, numbers, strict=True)
    }


def by_label(text: str) -> dict[str, dict[str, Cited]]:
    """Return the numbers of Table 3, 4, 5 or 6 by dataset and by the label of the column."""
    head = text.strip("\n").splitlines()[0].partition(" | ")[2].replace(" | ", " ").split()
    labels = [name.replace("_", " ").replace("|D r|", "|D_r|").replace("=", " = ") for name in head]
    return {dataset: dict(zip(labels, numbers, strict=True)) for dataset, numbers in rows(text).items()}


SEVERAL, ONE = by_dataset(TABLE_1), by_dataset(TABLE_2)
"""Tables 1 and 2 by dataset, column and the paper's name of the method."""
OF_KT_PFL: Mapping[str, dict[str, dict[str, Cited]]] = {
    part: by_label(text)
    for part, text in {"table3": TABLE_3, "table4": TABLE_4, "table5": TABLE_5, "table6": TABLE_6}.items()
}
"""Tables 3 to 6, the paper's study, by the table's name in `conf/`, dataset and label."""
