"""Draws the Mermaid blocks of the documentation into docs/images/: ``python docs/generate/mermaid.py``.

Needs Mermaid's command line, ``npm install -g @mermaid-js/mermaid-cli``, and the Chromium that it finds or that
PUPPETEER_EXECUTABLE_PATH names.
"""

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

DOCS = Path(__file__).parents[1]
sys.path.insert(0, str(DOCS / "_ext"))

from mermaid import digest, picture  # noqa: E402

BLOCK = re.compile(r"^```mermaid\n(.*?)^```", re.DOTALL | re.MULTILINE)
SETTINGS = {
    "theme": "neutral",
    "flowchart": {"htmlLabels": False, "nodeSpacing": 30, "rankSpacing": 26},
    "fontFamily": "system-ui, sans-serif",
}


def draw(source: str) -> None:
    """Draw one block."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        (place / "block.mmd").write_text(source, encoding="utf-8")
        (place / "settings.json").write_text(json.dumps(SETTINGS), encoding="utf-8")
        (place / "browser.json").write_text('{"args": ["--no-sandbox"]}', encoding="utf-8")
        command = [
            "mmdc",
            "-i",
            "block.mmd",
            "-o",
            "out.svg",
            "-c",
            "settings.json",
            "-p",
            "browser.json",
            "-b",
            "white",
        ]
        subprocess.run(command, cwd=place, check=True)
        drawn = (place / "out.svg").read_text(encoding="utf-8")
    picture(source).write_text(f"{drawn.strip()}\n{digest(source)}\n", encoding="utf-8")


if __name__ == "__main__":
    for page in sorted(DOCS.rglob("*.md")):
        for block in BLOCK.findall(page.read_text(encoding="utf-8")):
            draw(block)
