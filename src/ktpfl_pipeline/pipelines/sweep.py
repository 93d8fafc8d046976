"""One setting of an experiment at several values."""

from collections.abc import Sequence
from pathlib import Path

from ktpfl_pipeline.analysis.study import Study
from ktpfl_pipeline.config.studies import CellSettings, Sweep
from ktpfl_pipeline.core.identity import flat
from ktpfl_pipeline.core.validation import plain
from ktpfl_pipeline.pipelines.federated_training import progress
from ktpfl_pipeline.pipelines.study import check_possible, in_turn, parent_run, plan


def run(name: str, sweep: Sweep, cells: Sequence[CellSettings], raw_folder: Path) -> Study:
    """Run every method at every value with every seed.

    Args:
        name: the sweep's.
        sweep: its settings.
        cells: what `parsing.sweep_cells` makes of them.
        raw_folder: where samples are, and where downloads go.

    Raises:
        InputError: naming the value whose data cannot be made, before anything is trained.
    """
    planned = plan(name, cells, raw_folder)
    check_possible(planned)
    left = in_turn(planned)
    with parent_run(name, flat(plain(sweep)), planned, {"kind": "sweep", "sweep": name}) as (key, tracked):
        progress.expect(len(left))
        runs = {at: each.run(seed, tracked.run_id) for at, (each, seed) in left.items()}
    return Study(plain(sweep), key, tracked.run_id, [each.cell(runs) for each in planned])
