"""`python -m ktpfl_pipeline`: what `kedro run` does, with its options, for the installed package.

It takes its configuration from ``conf/`` in the current folder, and writes below ``data/`` there.
"""

from kedro.framework.cli.utils import find_run_command
from kedro.framework.project import configure_project

PACKAGE = "ktpfl_pipeline"


def main(arguments: list[str] | None = None) -> None:
    """Run the pipelines that the command line asks for, and exit.

    Args:
        arguments: options of `kedro run`; None for those of the command line.
    """
    configure_project(PACKAGE)
    run = find_run_command(PACKAGE)
    run(arguments, prog_name=f"python -m {PACKAGE}")


if __name__ == "__main__":
    main()
