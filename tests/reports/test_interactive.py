import pandas as pd

from ktpfl_pipeline.reports import interactive


def test_labels_per_client() -> None:
    table = pd.DataFrame({"client": [0, 0, 1], "label": [0, 2, 2], "count": [5, 6, 7]})
    figure = interactive.labels_per_client(table)
    assert [(bar.name, list(bar.y), list(bar.x)) for bar in figure.data] == [("0", [0], [5]), ("2", [0, 1], [6, 7])]
    assert figure.layout.barmode == "stack"
