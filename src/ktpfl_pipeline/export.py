"""The commands `ktpfl export` and `ktpfl predict`: the model that each client keeps, and its predictions."""

import csv
import io
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import click

from ktpfl_pipeline.core.errors import InputError, listed, plural, unknown
from ktpfl_pipeline.tracking import KeptModel

OWN = "local"
"""The method whose model a client has without any exchange."""
SHOWN = click.Path(path_type=Path)


class Exported(NamedTuple):
    """A client's exported model. Accuracies are those of the last evaluation, in 0..1; None if unknown."""

    client: str
    method: str
    seed: int
    validation: float | None
    own: float | None  #: the validation accuracy of the client's own model
    test: float
    folder: Path
    run: Any  #: the `FinishedRun` of the model
    id: int  #: the client's id

    def tracked(self) -> KeptModel:
        """Return the model as it is listed in MLflow."""
        about = {
            "client": self.client,
            "method": self.method,
            "seed": str(self.seed),
            "experiment": self.run.experiment,
        }
        known = {"kept/validation_accuracy": self.validation, "kept/test_accuracy": self.test}
        metrics = {name: value for name, value in known.items() if value is not None}
        return KeptModel(self.run.run_id, self.folder, about, metrics, self.id)


COLUMNS = ("client", "method", "seed", "validation accuracy", "own model", "test accuracy", "folder")


@click.command()
@click.argument("experiment")
@click.option("--method", help="Export this method's models. Without it, each client keeps its best model.")
@click.option("--client", multiple=True, help="Export this client's model only: a name or a number; may be repeated.")
@click.option("--seed", type=int, help="Export the models of this seed. Without it, those of the lowest seed.")
@click.option("--mlflow", "listed_too", is_flag=True, help="Also list the models in MLflow, below their runs.")
@click.option("--out", type=SHOWN, default=Path("models"), show_default=True, help="The folder of the new folders.")
@click.option("--data", type=SHOWN, default=Path("data"), show_default=True, help="The project's folder of data.")
def export(
    experiment: str,
    method: str | None,
    client: tuple[str, ...],
    seed: int | None,
    listed_too: bool,
    out: Path,
    data: Path,
) -> None:
    """Write the model that each client of EXPERIMENT keeps to a folder that MLflow can serve.

    The runs must have finished. The models are those after the last round. Without --method, each client chooses by the
    default rule of evaluation.choice: the best model on its validation samples, and after a tie its own model of
    local-only training.
    """
    try:
        if listed_too:
            from ktpfl_pipeline.settings import project_tracker  # Kedro takes a second

            tracker = project_tracker()
        made = exported(experiment, method, client, out, data, seed)
        click.echo(_table([COLUMNS, *([_rounded(value) for value in each[: len(COLUMNS)]] for each in made)]), nl=False)
        if listed_too:
            if not all(each.run.run_id for each in made):
                raise InputError(f"{experiment} was run without MLflow, so its models cannot be listed there.")
            tracker.add_models([each.tracked() for each in made])
            click.echo(f"MLflow lists the models in the experiment {experiment}, on the tab Models: ktpfl ui", err=True)
    except InputError as error:
        raise click.ClickException(str(error)) from error


@click.command()
@click.argument("model", type=SHOWN)
@click.argument("files", metavar="[INPUT]...", nargs=-1, type=SHOWN)
@click.option("--text", multiple=True, help="A text to classify; may be repeated.")
@click.option("--decimal", default=".", show_default=True, help="The decimal separator of a table.")
@click.option("--missing", multiple=True, help="A string that means a missing value in a table; may be repeated.")
@click.option("--own-code", multiple=True, help="Allow the code of an architecture of your own, my_package.nets:wide.")
def predict(
    model: Path,
    files: tuple[Path, ...],
    text: tuple[str, ...],
    decimal: str,
    missing: tuple[str, ...],
    own_code: tuple[str, ...],
) -> None:
    """Print the class that MODEL predicts for each input, and the probability of each class, as CSV.

    MODEL is a folder of `ktpfl export` or of a real client. An INPUT is an image file, a folder of image files, a table
    (.csv) with one row for each sample or text, a series (.csv) with one row for each step, or an array (.npz, .npy).
    """
    from ktpfl_pipeline.analysis.kept import load

    try:
        if not files and not text:
            raise click.UsageError("Give an INPUT, or a text with --text.")
        kept = load(model, own_code)
        each_file = [each for file in files for each in kept.inputs.files_of(file)]
        given = [(str(file), kept.inputs.of_file(file, decimal, missing)) for file in each_file]
        given += [("text", kept.inputs.of_texts(text))] if text else []
        rows: list[Sequence[Any]] = []
        for name, inputs in given:
            answers = kept.answers(kept.predict(inputs))
            rows += [
                (f"{name}:{place}" if len(answers) > 1 else name, *(_rounded(value) for value in answer.values()))
                for place, answer in enumerate(answers, 1)
            ]
    except InputError as error:
        raise click.ClickException(str(error)) from error
    click.echo(_table([("input", *answers[0]), *rows]), nl=False)


def exported(
    experiment: str, method: str | None, clients: Sequence[str], out: Path, data: Path, seed: int | None = None
) -> list[Exported]:
    """Write the models of a seed, by default the lowest, and return what was written for each client.

    Raises InputError if there are no finished runs with models, a name is unknown, or a folder exists.
    """
    from ktpfl_pipeline.analysis import kept
    from ktpfl_pipeline.core.metrics import AFTER_TRANSFER
    from ktpfl_pipeline.core.settings import Choice

    results = finished(experiment, data)
    if method is not None and method not in results:
        raise unknown("method", method, results)
    runs = of_seed(results, seed)
    one = runs[method or next(iter(runs))]
    names = dict(zip(one.client_ids, one.names or [f"client-{n}" for n in one.client_ids], strict=True))
    if odd := [each for each in clients if each not in {*names.values(), *map(str, names)}]:
        raise unknown("client", odd[0], names.values())
    places = [p for p, (n, name) in enumerate(names.items()) if not clients or {str(n), name} & {*clients}]
    taken = {place: method or chosen(runs, place) for place in places}
    least = Choice().minimum
    few = [place for place in places if not method and one.samples["validation"][place] < least]
    if few:
        click.echo(
            f"Fewer than {least} validation samples, no choice: {len(few)} of {plural(len(places), 'client')}. "
            "They keep their own model. --method exports a method's models.",
            err=True,
        )
    folders = _folders([[*names.values()][place] for place in places], out / experiment)
    if old := [folder for folder in folders if folder.exists()]:
        raise InputError(f"{old[0]} is there already: move it away, or name another folder with --out.")
    stored = {name: _models(runs[name], data) for name in dict.fromkeys(taken.values())}
    accuracy, made = {name: last_validation(run) for name, run in runs.items()}, []
    for place, folder in zip(places, folders, strict=True):
        name, n = taken[place], one.client_ids[place]
        content, run = stored[name], runs[name]
        kept.save(
            folder, content["models"][n], {**content["about"], **content["clients"][n], "client": n}, data / "01_raw"
        )
        validation, own = (accuracy[key][place] if accuracy.get(key) else None for key in (name, OWN))
        test = run.evaluated[-1].accuracy[AFTER_TRANSFER][place]
        made.append(Exported(names[n], name, run.seed, validation, own, test, folder, run, n))
    return made


def finished(experiment: str, data: Path) -> dict[str, Any]:
    """Return the results of the finished methods of an experiment, `MethodResult`s, by method.

    Raises InputError if there is none, or a result cannot be read.
    """
    from ktpfl_pipeline.analysis.results import MethodResult
    from ktpfl_pipeline.core.machine.files import content_of

    place = data / "07_model_output"
    results = {}
    for file in sorted((place / experiment).glob("*/result.json")):
        try:
            result = MethodResult.from_dict(json.loads(content_of(file)))
        except (OSError, ValueError) as error:
            raise InputError(f"{file} cannot be read ({error}): run the experiment again.") from error
        results[result.method] = result
    if not results:
        there = sorted(each.parents[1].name for each in place.glob("*/*/result.json"))
        found = f"there are {listed([*dict.fromkeys(there)])}" if there else "there are none"
        raise InputError(f"{place} has no finished runs of {experiment!r} ({found}): run the experiment first.")
    return results


def of_seed(results: Mapping[str, Any], seed: int | None) -> dict[str, Any]:
    """Return each method's run with a seed, by method; None: the lowest. `results` are `MethodResult`s by method.

    Raises InputError if a method has no run with this seed.
    """
    found = {}
    for name, result in results.items():
        by_seed = {run.seed: run for run in result.runs}
        if (wanted := min(by_seed) if seed is None else seed) not in by_seed:
            raise unknown(f"seed of {name}", str(wanted), map(str, by_seed))
        found[name] = by_seed[wanted]
    return found


def chosen(runs: Mapping[str, Any], place: int) -> str:
    """Return the method whose model the client at a position keeps, by the default rule of `evaluation.choice`.

    Of the methods whose models the client would keep instead of its own, it is the one with the highest accuracy on its
    validation samples in the last evaluation. `runs` are `FinishedRun`s by method. Raises InputError if the clients
    have no choice.
    """
    from ktpfl_pipeline.core.settings import Choice

    accuracy = {name: last_validation(run) for name, run in runs.items()}
    why = {
        "local-only training has no finished run": OWN not in runs,
        "the clients have no validation samples": not all(accuracy.values()),
        "the methods were run on different data": len({run.data for run in runs.values()}) > 1,
    }
    if reasons := [reason for reason, holds in why.items() if holds]:
        raise InputError(f"The clients cannot choose a model, because {reasons[0]}: name the method with --method.")
    own, samples = accuracy[OWN][place], runs[OWN].samples["validation"][place]
    better = {name: each[place] for name, each in accuracy.items() if Choice().keeps(each[place], own, samples)}
    return max(better, key=better.__getitem__, default=OWN)


def last_validation(run: Any) -> list[float]:
    """Return each client's accuracy on its validation samples in the last evaluation, (N,); empty without samples."""
    from ktpfl_pipeline.core.metrics import VALIDATION

    return list(run.evaluated[-1].accuracy.get(VALIDATION, ()))


def _models(run: Any, data: Path) -> dict[str, Any]:
    """Return the models of a run as `runs.run.keep_models` wrote them."""
    import torch

    from ktpfl_pipeline.methods import slug
    from ktpfl_pipeline.runs.identity import MODELS, run_folder

    file = data / "06_models" / run.experiment / slug(run.method) / run_folder(run.seed, run.key) / MODELS
    try:
        found: dict[str, Any] = torch.load(file, weights_only=True, map_location="cpu")
    except FileNotFoundError as error:
        raise InputError(
            f"The models of {run.method} with seed {run.seed}, {file}, do not exist: write `models: all` into "
            "conf/local/tracking.yml, and repeat the run's command; it trains nothing again, and writes them. Real "
            "clients keep their models themselves, in their folders `kept`."
        ) from error
    except Exception as error:  # damaged files can cause any error
        raise InputError(f"{file} cannot be read ({error}): delete it, and repeat the run's command.") from error
    return found


def _folders(names: Sequence[str], out: Path) -> list[Path]:
    """Return a folder for each client, named by the client; characters that are not safe in names are replaced."""
    plain = [re.sub(r"[^\w-]+", "-", name).strip("-").lower() or "client" for name in names]
    return [out / (name if plain.count(name) == 1 else f"{name}-{place}") for place, name in enumerate(plain)]


def _rounded(value: Any) -> Any:
    return "unknown" if value is None else f"{value:.4f}" if isinstance(value, float) else value


def _table(rows: Sequence[Sequence[Any]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()
