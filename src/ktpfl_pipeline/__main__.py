"""The command `ktpfl`, also `python -m ktpfl_pipeline`: it runs the installed package's pipelines, like `kedro run`.

The options are those of `kedro run`. The configuration is read from ``conf/`` in the current folder, or from the
package if the current folder has none. Results are written below the current folder. Other commands:

- ``ktpfl conf`` copies the package's configuration here, to be edited.
- ``ktpfl ui`` shows the runs in MLflow.
- ``ktpfl convert`` converts a dataset to an `.npz` file.
- ``ktpfl check`` checks a user's method, model or source.
- ``ktpfl export`` writes the model that each client keeps; ``ktpfl predict`` uses it.
"""

import os
import shutil
import sys
from pathlib import Path
from typing import Any

PACKAGE = "ktpfl_pipeline"
CONF = Path(__file__).with_name("conf")
WITHOUT_OPTIONS = {"conf": "copies the configuration to ./conf", "ui": "shows the runs in MLflow until it is stopped"}
"""Descriptions of the commands without options."""


def main(arguments: list[str] | None = None) -> None:
    """Run the command in `arguments`, or the command line if None. Except for conf and ui, it ends with SystemExit."""
    given = sys.argv[1:] if arguments is None else arguments
    if given[:1] in (["conf"], ["ui"]) and given[1:]:
        return explain(*given)
    if given == ["conf"]:
        return copy_configuration(Path("conf"))
    if given[:1] == ["convert"]:
        from ktpfl_pipeline.convert import convert

        convert(given[1:], prog_name="ktpfl convert")  # raises SystemExit
    if given[:1] in (["export"], ["predict"]):
        from ktpfl_pipeline import export

        find_packages_in(Path.cwd())
        command = export.export if given[0] == "export" else export.predict
        command(given[1:], prog_name=f"ktpfl {given[0]}")  # raises SystemExit
    if given[:1] == ["check"]:
        from ktpfl_pipeline.check.command import check

        find_packages_in(Path.cwd())
        check(given[1:], prog_name="ktpfl check")  # raises SystemExit
    if not Path("conf").is_dir():
        os.environ.setdefault("KEDRO_LOGGING_CONFIG", str(CONF / "logging.yml"))  # Kedro reads the variable on import
    if given == ["ui"]:
        from ktpfl_pipeline import ui

        return ui.main()
    configure_project = _kedro_project()
    from kedro.framework.cli.utils import find_run_command

    find_packages_in(Path.cwd())
    configure_project(PACKAGE)
    run: Any = find_run_command(PACKAGE)
    run.epilog = (
        f"`ktpfl conf` {WITHOUT_OPTIONS['conf']}. `ktpfl ui` {WITHOUT_OPTIONS['ui']}. `ktpfl convert` makes data "
        "files, `ktpfl check` checks your own methods, models and sources, `ktpfl export` writes the models that the "
        "clients keep, and `ktpfl predict` uses them."
    )
    run(given, prog_name="ktpfl")


def explain(command: str, *options: str) -> None:
    """Print the help of `command`, which takes no options. Exit with an error if `options` are not ``--help``."""
    if options in (("--help",), ("-h",)):
        print(f"Usage: ktpfl {command}\n\n`ktpfl {command}` {WITHOUT_OPTIONS[command]}. It takes no options.")  # noqa: T201
    else:
        sys.exit(f"Error: `ktpfl {command}` takes no options (found {' '.join(options)}). Leave them out.")


def _kedro_project() -> Any:
    """Return Kedro's function that configures a project, or exit with an error if `logging.yml` cannot be used.

    Kedro reads `logging.yml` when the module of this function is imported.
    """
    from yaml import YAMLError

    try:
        from kedro.framework.project import configure_project
    except (OSError, ValueError, TypeError, AttributeError, YAMLError) as error:
        file = os.environ.get("KEDRO_LOGGING_CONFIG", "conf/logging.yml")
        reason = " ".join(str(error).split())[:300]
        sys.exit(
            f"Error: {file} cannot be used as the configuration of logging ({reason}): correct it, or copy "
            f"{CONF / 'logging.yml'} in its place."
        )
    return configure_project


def find_packages_in(folder: Path) -> None:
    """Make the modules in `folder` and in its subfolder `src` importable, in this process and in all worker processes.

    Without this function, Python searches the folder of the command `ktpfl` and not the current folder. A folder with
    another copy of this package is not added, because workers would import that copy.
    """
    ours = Path(__file__).parents[1]
    places = [place for place in (folder / "src", folder) if place == ours or not (place / PACKAGE).exists()]
    here = [str(place) for place in places if place.is_dir()]
    sys.path[:0] = [place for place in here if place not in sys.path]
    others = [place for place in os.environ.get("PYTHONPATH", "").split(os.pathsep) if place and place not in here]
    os.environ["PYTHONPATH"] = os.pathsep.join(here + others)  # Ray starts its actors with this variable


def copy_configuration(folder: Path) -> None:
    """Copy the package's configuration to a new folder. Exit with an error if the folder exists."""
    if folder.exists():
        sys.exit(f"Error: {folder}/ is there already, and is what runs here use; edit it, or move it away first.")
    shutil.copytree(CONF, folder)
    print(f"{folder}/ is what runs in this folder use from now on: edit {folder}/base/.")  # noqa: T201


if __name__ == "__main__":
    main()
