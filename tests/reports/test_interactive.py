from ktpfl_pipeline.reports import interactive


def test_labels_per_client() -> None:
    figure = interactive.labels_per_client([[5, 0, 6], [0, 0, 7]], [0, 1], range(3))
    assert [(bar.name, list(bar.y), list(bar.x)) for bar in figure.data] == [("0", [0], [5]), ("2", [0, 1], [6, 7])]
    assert figure.layout.barmode == "stack"


def test_clients_with_names_are_in_their_order() -> None:
    for names in (["b", "a"], ["2048", "7"]):
        axis = interactive.labels_per_client([[0, 5, 6], [7, 0, 0]], names, range(3)).layout.yaxis
        assert (axis.type, list(axis.categoryarray)) == ("category", names)
