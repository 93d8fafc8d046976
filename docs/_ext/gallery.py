"""The gallery: a comparison of `--env=quick`, whose figures are drawn by the lines that are shown.

It is trained once for each clone, which takes minutes, and not again when the source changes: build/gallery keeps it.
Without this folder the next build trains it again.

A block ``{draw} NAME`` holds Python and is run below the project in which the comparison was made, one block after
another, as a reader would. If its last line is a figure, that is shown below it.
"""

import ast
import contextlib
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

ROOT = Path(__file__).parents[2]
PLACE = ROOT / "build" / "gallery"
PICTURES = Path("docs", "_gallery")
RUN = {"env": "quick", "pipelines": "compare_hetero_digits", "params": {"hetero_digits": {"seeds": [0, 1, 2]}}}


def run_comparison(app: Sphinx) -> None:
    """Run the comparison in a copy of the project, unless build/gallery has a finished one."""
    stamp = PLACE / "finished"
    if stamp.is_file():
        return
    sys.stderr.write("The gallery trains a small comparison first, once for this clone: minutes.\n")
    shutil.rmtree(PLACE, ignore_errors=True)
    shutil.copytree(ROOT / "conf", PLACE / "conf", ignore=shutil.ignore_patterns("local"))
    for folder in ("src", "conf/local", "data/01_raw"):
        (PLACE / folder).mkdir(parents=True)
    shutil.copy(ROOT / "pyproject.toml", PLACE)
    (PLACE / "conf" / "quick" / "tracking.yml").write_text("enabled: false\n")
    (PLACE / "run.yml").write_text(yaml.safe_dump({"run": RUN}))
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "KEDRO_DISABLE_TELEMETRY": "1", "COLUMNS": "100"}
    command = [sys.executable, "-m", "kedro", "run", "--config=run.yml"]
    subprocess.run(command, cwd=PLACE, env=environment, check=True, stdout=subprocess.DEVNULL)
    stamp.touch()


def copy_report(app: Sphinx, error: Exception | None) -> None:
    """Put the comparison's report beside the pages."""
    (page,) = (PLACE / "data" / "08_reporting" / "compare_hetero_digits").rglob("report.html")
    shutil.copytree(page.parent, Path(app.outdir) / "report", dirs_exist_ok=True)


class Draw(SphinxDirective):
    """Python that is shown and run."""

    optional_arguments = 1
    has_content = True

    def run(self) -> list[nodes.Node]:
        """Return the code, and the figure that it draws."""
        source = "\n".join(self.content)
        *lines, last = ast.parse(source).body
        namespace = self.env.temp_data.setdefault("gallery", {})
        with contextlib.chdir(PLACE):
            exec(compile(ast.Module(lines, []), self.env.docname, "exec"), namespace)
            figure = None
            if self.arguments:
                figure = eval(compile(ast.Expression(last.value), self.env.docname, "eval"), namespace)  # type: ignore[attr-defined]
            else:
                exec(compile(ast.Module([last], []), self.env.docname, "exec"), namespace)
        shown: list[nodes.Node] = [nodes.literal_block(source, source, language="python")]
        if figure is not None:
            file = PICTURES / f"{self.arguments[0]}.svg"
            (ROOT / file).parent.mkdir(exist_ok=True)
            figure.savefig(ROOT / file, bbox_inches="tight", facecolor="white")
            shown.append(nodes.image(uri=f"/{file.as_posix()}", alt=self.arguments[0], classes=["diagram"]))
        return shown


class LiveReport(SphinxDirective):
    """The report of the comparison, in a frame and by a link."""

    def run(self) -> list[nodes.Node]:
        """Return both."""
        place = "../" * self.env.docname.count("/") + "report/report.html"
        return [
            nodes.raw(
                "",
                f'<p><a href="{place}">Open the report</a></p><iframe class="report" src="{place}"'
                ' title="Report of a comparison" loading="lazy"></iframe>',
                format="html",
            )
        ]


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the directives, run the comparison before pages are read, and copy its report at the end."""
    app.connect("builder-inited", run_comparison)
    app.connect("build-finished", copy_report)
    app.add_directive("draw", Draw)
    app.add_directive("live-report", LiveReport)
    return {"parallel_read_safe": False, "parallel_write_safe": True}
