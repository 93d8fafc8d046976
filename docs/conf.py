"""How the documentation is built: ``make docs``, offline, with every warning an error.

The whole project is Sphinx's source folder, so that one relative link serves the site and GitHub.
"""

import sys
from pathlib import Path

DOCS = Path(__file__).parent
sys.path[:0] = [str(DOCS / "_ext"), str(DOCS.parent / "src")]

from ktpfl_pipeline import __version__  # noqa: E402

project = "ktpfl_pipeline"
release = __version__
copyright = "the authors of ktpfl_pipeline"

extensions = [
    "myst_nb",
    "sphinx_design",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "mathml",
    "mermaid",
    "unbroken",
    "repository",
    "settings_reference",
    "gallery",
]
root_doc = "docs/index"
include_patterns = ["docs/**", "notebooks/*.ipynb", "benchmarks/README.md"]
include_patterns += ["CONTRIBUTING.md", "CODE_OF_CONDUCT.md", "CHANGELOG.md", "SECURITY.md"]
exclude_patterns = [".*", "build", "conf", "data", "dist", "mlruns", "src", "tests", "docs/README.md", "docs/_*"]
exclude_patterns += ["docs/checks", "**/.ipynb_checkpoints"]
# Evidence of tests: linked as files, and out of navigation and search.
OF_TESTS = ("bad_inputs", "faults", "real_faults", "torchvision_models")
exclude_patterns += [f"docs/project/{name}.md" for name in OF_TESTS]

myst_enable_extensions = ["dollarmath", "colon_fence", "attrs_inline"]
myst_fence_as_directive = ["mermaid"]
myst_heading_anchors = 4
nb_execution_mode = "off"  # notebooks bring their outputs, which docs/checks makes again

html_theme = "furo"
html_title = project
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_additional_pages = {"index": "to_the_first_page.html"}
templates_path = ["_templates"]
html_show_sphinx = False
html_show_sourcelink = False
html_copy_source = False
html_theme_options = {"navigation_with_keys": True}
html_math_renderer = "mathml"
pygments_style, pygments_dark_style = "a11y-high-contrast-light", "a11y-high-contrast-dark"

autodoc_default_options = {"members": True, "member-order": "bysource"}
autodoc_typehints_format = "short"
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 100
napoleon_numpy_docstring = False
napoleon_use_ivar = True
default_role = "code"
nitpicky = True
nitpick_ignore_regex = [("py:.*", ".*")]  # types of torch and of the standard library: their pages are not at hand
