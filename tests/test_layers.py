"""No file imports in a circle, the ``__init__`` of packages included: import-linter's contracts see packages whole."""

import grimp


def circles(graph: grimp.ImportGraph) -> list[list[str]]:
    """Return the groups of modules that import one another, directly or by way of others."""
    modules = sorted(graph.modules)
    upstream = {module: graph.find_upstream_modules(module) for module in modules}
    together = {frozenset([a, *(b for b in upstream[a] if a in upstream[b])]) for a in modules}
    return sorted(sorted(group) for group in together if len(group) > 1)


def test_no_circle() -> None:
    assert circles(grimp.build_graph("ktpfl_pipeline", cache_dir=None)) == []


def test_a_circle_is_found() -> None:
    graph = grimp.ImportGraph()
    for importer, imported in (("a", "b"), ("b", "c"), ("c", "a"), ("d", "a")):
        graph.add_import(importer=importer, imported=imported)
    assert circles(graph) == [["a", "b", "c"]]
