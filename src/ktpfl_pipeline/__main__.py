"""`python -m ktpfl_pipeline`: what `kedro run` does, with its options, for the installed package.

It takes its configuration from ``conf/`` in the current folder, and writes below ``data/`` there.
"""

from kedro.framework.cli.utils import find_run_command
from kedro.framework.project import configure_project

PACKAGE = "ktpfl_pipeline"


def main(arguments: list[str] | None = None) -> None:
    """Run the pipelines that `arguments` ask for, or the command line where they are None, and exit."""
    configure_project(PACKAGE)
    find_run_command(PACKAGE)(arguments, prog_name=f"python -m {PACKAGE}")


if __name__ == "__main__":
    main()
