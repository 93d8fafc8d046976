"""Runs the notebooks and stores their outputs in them: ``python docs/generate/notebooks.py``, or with some of them."""

import base64
import hashlib
import io
import os
import sys
from pathlib import Path
from typing import Any

from PIL import Image

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"


def execute(path: Path) -> None:
    """Run a notebook from top to bottom in its folder, and store what it gives, but nothing of this machine."""
    import nbformat
    from nbclient import NotebookClient

    notebook = nbformat.read(path, as_version=4)
    resources = {"metadata": {"path": path.parent}}
    NotebookClient(notebook, resources=resources, record_timing=False, timeout=900).execute()
    for cell in notebook["cells"]:
        for output in cell.get("outputs", []):
            if "image/png" in output.get("data", {}):
                output["data"] = {"image/png": smaller(output["data"]["image/png"])}
    kernel = notebook["metadata"]["kernelspec"]
    notebook["metadata"] = {"executed": digest(notebook), "kernelspec": kernel, "language_info": {"name": "python"}}
    nbformat.write(notebook, path)


def smaller(picture: str) -> str:
    """Return a PNG in base64 with 128 colors."""
    buffer = io.BytesIO()
    image = Image.open(io.BytesIO(base64.b64decode(picture))).convert("RGB")
    image.quantize(128, dither=Image.Dither.NONE).save(buffer, format="PNG", optimize=True)
    return base64.b64encode(buffer.getvalue()).decode()


def digest(notebook: Any) -> str:
    """Return a hash of the code, by which a test knows whether the outputs are of this code."""
    code = ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]
    return hashlib.sha256("\0".join(code).encode()).hexdigest()[:16]


if __name__ == "__main__":
    os.environ["OMP_NUM_THREADS"] = "1"  # several would round differently
    for given in sys.argv[1:] or sorted(NOTEBOOKS.glob("*.ipynb")):
        execute(Path(given))
