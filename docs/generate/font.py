"""Make docs/_static/formulas.woff2, the font of formulas, from a file of Noto Sans Math (SIL Open Font License 1.1).

Browsers stretch braces and brackets only with a font that has a MATH table, and many machines have no such font. Run it
with the font's file: ``uv run --with brotli python docs/generate/font.py noto-sans-math-latin-400-normal.woff2``.
"""

import sys
from itertools import chain
from pathlib import Path

from fontTools import subset
from fontTools.ttLib import TTFont

KEPT = (
    *((0x20, 0x7F), (0xA0, 0x100), (0x2B0, 0x3D7), (0x3F1, 0x3F6)),  # Latin, accents, Greek
    *((0x2010, 0x2040), (0x20D0, 0x20E2), (0x2100, 0x2150), (0x2190, 0x21E0)),  # marks, letters, arrows
    *((0x2200, 0x2300), (0x2308, 0x230C), (0x239B, 0x23B7), (0x23DC, 0x23E2)),  # operators, brackets and their parts
    *((0x27E6, 0x27F8), (0x2A7D, 0x2A7F), (0x1D400, 0x1D468), (0x1D49C, 0x1D4D0)),  # bold, italic, script
    *((0x1D538, 0x1D56C), (0x1D6A4, 0x1D6A6), (0x1D6A8, 0x1D71C), (0x1D7CE, 0x1D7D8)),  # double-struck, Greek, digits
)
"""Ranges of characters, the last one excluded."""
TARGET = Path(__file__).parents[1] / "_static" / "formulas.woff2"

if __name__ == "__main__":
    font = TTFont(sys.argv[1])
    subsetter = subset.Subsetter(subset.Options(layout_features=["*"], name_IDs=["*"], notdef_outline=True))
    subsetter.populate(unicodes=chain.from_iterable(range(*ends) for ends in KEPT))
    subsetter.subset(font)
    font.flavor = "woff2"
    font.save(TARGET)
