"""Bad configuration files of conf/, and the Kedro context of such files."""

import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import yaml
from kedro.config import OmegaConfigLoader

from ktpfl_pipeline import settings

EXPERIMENT = {
    "seeds": [0],
    "architectures": ["mlp"],
    "private": {"source": "digits"},
    "public": {"source": "open_part"},
    "image": {"channels": 1, "size": 28},
    "partition": {"scheme": "iid"},
    "methods": {"kt_pfl": {}},
}
TRACKING = {"enabled": False, "store": "sqlite:///mlflow.db", "artifacts": "mlruns", "checkpoints": "data/06_models"}


TRACE = Path(tempfile.gettempdir()) / "ktpfl-the-code-ran"
UNREADABLE = "The files parameters*.yml under conf/ cannot be read: "
LINE = "conf/base/parameters.yml, line 1: "
YAML: dict[str, tuple[str, str]] = {
    "a tag that runs code": (f"x: !!python/object/apply:os.mkdir [{TRACE}]", LINE),
    "a tag that makes an object": ("x: !!python/object:ktpfl_pipeline.config.studies.Sweep {}", LINE),
    "a tag that imports a module": ("x: !!python/module:antigravity", LINE),
    "a tag that evaluates": ("x: !!python/object/new:eval ['1+1']", LINE),
    "a resolver that evaluates": ("x: ${eval:1+1}", UNREADABLE),
    "the environment": ("x: ${oc.env:HOME}", UNREADABLE),
    "an interpolation of nothing": ("x: ${nowhere}", UNREADABLE),
    "an interpolation that does not end": ("x: ${", "conf/base/parameters.yml is not valid YAML: "),
    "a section twice": ("x: {}\nx: {}", "conf/base/parameters.yml, line 2: found duplicate key x."),
    "an alias of nothing": ("x: *nothing", LINE),
    "a list": ("- 1\n- 2", "A file parameters*.yml under conf/ has no names at its top level"),
    "a number": ("5", "conf/base/parameters.yml contains a single value"),
    "bytes": ("\x00\x01", "conf/base/parameters.yml is not valid YAML: "),
    "a list for a name": ("? [a, b]\n: 1", LINE),
    "a number of 5,000 digits": ("x: " + "9" * 5000, "conf/base/parameters.yml is not valid YAML: "),
    "aliases of aliases": (
        "a: &a [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]\n"
        + "".join(f"{y}: &{y} [{', '.join([f'*{x}'] * 10)}]\n" for x, y in zip("abcdefgh", "bcdefghi", strict=True)),
        "conf/base/parameters.yml has more than 20,000 values after its aliases are expanded.",
    ),
    "an alias of itself": ("a: &a [*a]", "conf/base/parameters.yml has more than 20,000 values after its aliases"),
    "too many values": ("a: [" + "1, " * 21_000 + "1]", "conf/base/parameters.yml has more than 20,000 values"),
    "a large file": ("a: " + "x" * 2**20, "conf/base/parameters.yml has 1,048,579 bytes. At most 1,048,576 are"),
    "a number for a name": ("5: {a: 1}", "A section in conf/ is called 5"),
}
"""Bad files by description: the content of parameters.yml, and words of the message."""


def context(folder: Path, runtime: Any = None, env: str | None = None, **files: Any) -> Any:
    """Return Kedro's context of a project with these configuration files."""
    contents = {"parameters": {"digits": EXPERIMENT, "_shared": {}}, "tracking": TRACKING, **files}
    (folder / "conf" / "local").mkdir(parents=True, exist_ok=True)
    for name, content in contents.items():
        (folder / "conf" / "base").mkdir(parents=True, exist_ok=True)
        text = content if isinstance(content, str) else yaml.safe_dump(content)
        (folder / "conf" / "base" / f"{name}.yml").write_text(text)
    loader = OmegaConfigLoader(
        conf_source=str(folder / "conf"), env=env, runtime_params=runtime, **settings.CONFIG_LOADER_ARGS
    )
    return SimpleNamespace(config_loader=loader, project_path=folder)
