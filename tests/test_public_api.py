"""``import ktpfl_pipeline as kt`` offers what methods, notebooks and scripts need, and stays cheap."""

import subprocess
import sys
from pathlib import Path

import pytest
from cases import case

import ktpfl_pipeline as kt


def test_every_public_name_can_be_imported() -> None:
    assert all(getattr(kt, name) is not None for name in kt.__all__)
    assert set(kt.__all__) <= set(dir(kt))
    with pytest.raises(AttributeError, match="no attribute 'comparee'"):
        _ = kt.comparee


def test_importing_the_package_imports_no_torch() -> None:
    code = "import ktpfl_pipeline, sys; print('torch' in sys.modules, 'matplotlib' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]


PYTHON = "import ktpfl_pipeline as kt; kt.federation('digits', {})"
COMMAND = "from ktpfl_pipeline.__main__ import main; main(['--env=test', '--params', 'hetero_digits.{}'])"
KEDRO = "from kedro.framework.cli.cli import main; sys.argv = ['kedro', 'run', '--params', 'hetero_digits.{}']; main()"


MISTYPED = {
    PYTHON.format("trainning={'epochs': 1}"): "did you mean 'training'?",
    PYTHON.format("training={'epoch': 1}"): "federation.training.epoch does not exist; did you mean 'epochs'?",
    COMMAND.format("roundz=3"): "hetero_digits.roundz does not exist; did you mean 'rounds'?",
    KEDRO.format("rounds=none"): "hetero_digits.rounds is 'none'; it must be an integer",
    KEDRO.format("compare=fedmdd"): ("hetero_digits.compare is 'fedmdd', which does not exist; did you mean 'fedmd'?"),
    COMMAND.format("architectures=lenett"): (
        "hetero_digits.architectures is 'lenett', which does not exist; did you mean 'lenet'?"
    ),
    PYTHON.format("partition='dirichle'"): (
        "federation.partition.scheme is 'dirichle', which does not exist; did you mean 'dirichlet'?"
    ),
    "import ktpfl_pipeline as kt; kt.federation('digit')": (
        "federation.private.source is 'digit', which does not exist; did you mean 'digits'?"
    ),
}
EACH = """
import atexit, os, sys
import kedro.framework.cli.cli, ktpfl_pipeline.__main__
for number, code in enumerate(sys.argv[1:]):
    if os.fork() == 0:
        for stream in (1, 2):
            os.dup2(os.open(f"{FOLDER}/{number}.{stream}", os.O_CREAT | os.O_WRONLY), stream)
        atexit.register(lambda: print("torch" in sys.modules))
        exec(code)
        break
    with open(f"{FOLDER}/{number}.code", "w") as file:
        file.write(str(os.waitstatus_to_exitcode(os.wait()[1])))
"""


def test_a_mistyped_setting_is_answered_before_torch_is_imported(tmp_path: Path) -> None:
    """Each in a fork of one process that has imported the package and Kedro."""
    command = [sys.executable, "-c", f"FOLDER = {str(tmp_path)!r}\n{EACH}", *MISTYPED]
    subprocess.run(command, cwd=Path(__file__).parents[1], check=True)
    for number, message in enumerate(MISTYPED.values()):
        with case(message):
            code, output, errors = ((tmp_path / f"{number}.{what}").read_text() for what in ("code", "1", "2"))
            assert code == "1"
            assert message in " ".join(errors.split())
            assert output.split() == ["False"]


def test_making_and_running_a_federation_loads_no_library_of_tables_and_figures() -> None:
    code = (
        "import sys, ktpfl_pipeline as kt; fed = kt.federation('digits', 5, 'mlp', training={'epochs': 0}); "
        "kt.run('local', fed, rounds=1); print({'pandas', 'matplotlib', 'mlflow'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


@pytest.mark.usefixtures("blank_figures")
def test_a_comparison_shows_itself_and_writes_the_report(tmp_path: Path) -> None:
    fed = kt.federation("digits", clients=5, architectures="mlp", training={"epochs": 1})
    found = kt.compare(["kt_pfl", "local"], fed, rounds=1)
    assert [result.method for result in found.results] == ["kt_pfl", "local"]
    assert found._repr_html_().startswith("<iframe srcdoc=")
    page = found.write(tmp_path / "report")
    assert "KT-pFL" in page.read_text(encoding="utf-8")
    assert (tmp_path / "report" / "report.md").exists()
    with pytest.raises(kt.InputError, match=r"report already exists, and a report is written into a new folder"):
        found.write(tmp_path / "report")


def test_a_comparison_of_nothing_is_refused() -> None:
    with pytest.raises(kt.InputError, match="methods is empty"):
        kt.compare([])
    with pytest.raises(kt.InputError, match=r"methods is 'kt_pfl'; give a list, \['kt_pfl', 'local'\]"):
        kt.compare("kt_pfl")


def test_methods_that_a_report_could_not_tell_apart_are_refused_before_they_are_trained() -> None:
    weak, strong = (kt.create("kt_pfl", {"rho": rho}) for rho in (1.0, 5.0))
    for methods in ([weak, strong, "local"], ["kt_pfl", strong], ["local", "local"]):
        with pytest.raises(kt.InputError, match=r"^Two methods are called '(KT-pFL|Local-only)', and a report could"):
            kt.compare(methods)
