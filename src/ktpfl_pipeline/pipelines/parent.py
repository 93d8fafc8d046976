"""The tracker's run of a comparison, a sweep or a tuning, below which all of its runs are."""

import contextlib
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from ktpfl_pipeline import tracking
from ktpfl_pipeline.config.schema import Experiment
from ktpfl_pipeline.config.studies import Sweep, Tune
from ktpfl_pipeline.core.identity import digest, flat
from ktpfl_pipeline.core.validation import plain
from ktpfl_pipeline.pipelines.federated_training import progress
from ktpfl_pipeline.pipelines.federated_training.identity import identity_of_method
from ktpfl_pipeline.reports.model import Table
from ktpfl_pipeline.reports.render import markdown
from ktpfl_pipeline.reports.report import Report


@contextlib.contextmanager
def parent_run(
    name: str, settings: Sweep | Tune, points: Sequence[Experiment], methods: Sequence[str], tags: Mapping[str, str]
) -> Iterator[tuple[str, tracking.TrackedRun]]:
    """Yield the key and the run of a sweep or a tuning.

    The key is a hash of all settings and the source that it depends on: an equal one is continued.

    Args:
        name: the sweep's or tuning's.
        settings: its section of the configuration.
        points: the experiment, as its runs make it.
        methods: all that are run.
        tags: of the run.
    """
    values = plain(settings)
    key = digest(
        {
            "settings": values,
            "points": [point.shared() for point in points],
            "methods": [identity_of_method(method, point) for point in points for method in methods],
        }
    )
    trials = sum(settings.most(method) if isinstance(settings, Tune) else 1 for method in methods)
    progress.expect(trials * len(points))
    with tracking.current().run(tracking.Entry(name, name, key, flat(values), tags)) as tracked:
        yield key, tracked


def log_report(
    experiment: str,
    name: str,
    key: str,
    report: Report,
    metrics: Mapping[str, float] | None = None,
    children: Sequence[str] = (),
) -> None:
    """Log a report to the run with this key, started before or new; its summary and its main table describe the run.

    What it held under these names is replaced. Arguments are those of `tracking.Entry`, and of `TrackedRun.report`.
    """
    tables = [markdown.table(block) for block in report.brief if isinstance(block, Table)]
    note = re.sub(" {2,}", " ", "\n\n".join([report.summary, *tables]))  # a tag has 8,000 characters
    tags = {"kind": "comparison" if children else "report"}
    with tempfile.TemporaryDirectory() as place:
        report.write(folder := Path(place, "report"))
        with tracking.current().run(tracking.Entry(experiment, name, key, {}, tags)) as tracked:
            tracked.report(folder, note, metrics or {}, children)
