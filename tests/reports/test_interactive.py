import pandas as pd

from ktpfl_pipeline.reports import interactive


def test_labels_per_client() -> None:
    table = pd.DataFrame({"client": [0, 0, 1], "label": [0, 2, 2], "count": [5, 6, 7]})
    figure = interactive.labels_per_client(table)
    assert [(bar.name, list(bar.y), list(bar.x)) for bar in figure.data] == [("0", [0], [5]), ("2", [0, 1], [6, 7])]
    assert figure.layout.barmode == "stack"


def test_clients_with_names_stand_in_the_order_of_the_table() -> None:
    for names in (["b", "a"], ["2048", "7"]):
        table = pd.DataFrame({"client": [names[0], *names], "label": [1, 2, 0], "count": [5, 6, 7]})
        axis = interactive.labels_per_client(table).layout.yaxis
        assert (axis.type, list(axis.categoryarray)) == ("category", names)
