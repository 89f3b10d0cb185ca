"""A copy of a framework's package with the corrections of `scripts/proof/corrections`."""

import shutil
import sys
from pathlib import Path

#: The module by which a correction replaces a few expressions of a function.
_REPLACED = Path(__file__).with_name("replaced.py")

#: One folder per framework; each file in it is appended to the module of the same path.
CORRECTIONS = Path(__file__).with_name("corrections")


def corrected(package: Path, copy: Path) -> Path:
    """Copy a package to ``copy`` and append the corrections, which take the names of what they replace."""
    shutil.copytree(package, copy, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(_REPLACED, copy.parent)
    folder = CORRECTIONS / package.name
    for correction in sorted(folder.rglob("*.py")):
        module = copy / correction.relative_to(folder)
        text = module.read_text(encoding="utf-8") + "\n\n" + correction.read_text(encoding="utf-8")
        module.write_text(text, encoding="utf-8")
    return copy


if __name__ == "__main__":
    corrected(Path(sys.argv[1]), Path(sys.argv[2]))
