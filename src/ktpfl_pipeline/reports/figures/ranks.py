"""How methods rank over settings."""

from matplotlib.figure import Figure

from ktpfl_pipeline.analysis.ranking import ERROR, Ranking
from ktpfl_pipeline.methods import title
from ktpfl_pipeline.reports.figures.base import single, styled
from ktpfl_pipeline.reports.style import INK, look, readable


@styled
def critical_differences(ranking: Ranking) -> Figure:
    """Draw the average ranks, the best at the left; a bar joins methods that do not differ by Nemenyi's test."""
    import scikit_posthocs  # here: it brings statsmodels and seaborn, which nothing else needs

    titles = [title(method) for method in ranking.methods]
    colours = [readable(look(method).colour) for method in ranking.methods]
    p = scikit_posthocs.posthoc_nemenyi_friedman([list(row) for row in ranking.accuracy])
    figure, axes = single(0.16 * len(titles) + 1.3)
    drawn = scikit_posthocs.critical_difference_diagram(
        dict(zip(titles, ranking.ranks, strict=True)),
        p.set_axis(titles).set_axis(titles, axis=1),
        alpha=ERROR,
        ax=axes,
        label_fmt_left="{label}  {rank:.1f} ",
        label_fmt_right=" {rank:.1f}  {label}",
        color_palette=dict(zip(titles, colours, strict=True)),
        crossbar_props={"color": INK},
    )
    for (bar,) in drawn["crossbars"]:  # whose methods are a set there, in another order in each process
        bar.set_xdata(sorted(bar.get_xdata()))
    axes.spines["top"].set_visible(True)
    return figure
