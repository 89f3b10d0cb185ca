"""The version that a checkout states of itself."""

from pathlib import Path

import pytest

from rl_sentinel.audit.source.version_file import stated_version

METADATA = "Metadata-Version: 2.1\nName: The.Frame\nVersion: 3.1\n\nVersion: 9\n"


def _put(root: Path, **files: str) -> Path:
    for name, text in files.items():
        place = root / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text, encoding="utf-8")
    return root


@pytest.mark.parametrize(
    ("files", "version"),
    [
        ({"frame/number": "1.2.3\n"}, "1.2.3"),
        ({"frame/VERSION": "1.2.3-dev\n"}, "1.2.3.dev0"),
        ({"frame/__init__.py": "import os\n__version__ = '2.0'\n"}, "2.0"),
        ({"frame/version.py": '__version__: str = "2.0rc1"\n'}, "2.0rc1"),
        ({"frame/version.py": "__version__ = read()\n", "the_frame-3.1.dist-info/METADATA": METADATA}, "3.1"),
        ({"other-3.1.dist-info/METADATA": METADATA.replace("The.Frame", "other")}, ""),
        ({"pyproject.toml": '[project]\nname = "the_frame"\nversion = "4.0"\n'}, "4.0"),
        ({"pyproject.toml": '[project]\nname = "a-workspace"\nversion = "4.0"\n'}, ""),
        ({"pyproject.toml": '[project]\nname = "frame"\ndynamic = ["version"]\n'}, ""),
        ({"pyproject.toml": "not toml"}, ""),
        ({"frame/VERSION": "unknown"}, ""),
        ({"frame/__init__.py": "__version__ = '0.4.7.devO'\n"}, "0.4.7"),  # the letter in place of the digit
        ({"frame/VERSION": "1.0 and later"}, ""),
        ({"frame/number": "1.0", "frame/__init__.py": "__version__ = '2.0'\n"}, "1.0"),
        ({}, ""),
    ],
)
def test_version_is_read_where_it_stands(tmp_path: Path, files: dict[str, str], version: str) -> None:
    assert stated_version(_put(tmp_path, **files), "frame", "the-frame", "number") == version


def test_project_file_of_a_source_folder_lies_above_it(tmp_path: Path) -> None:
    _put(tmp_path, **{"pyproject.toml": '[project]\nname = "frame"\nversion = "4.0"\n'})
    assert stated_version(tmp_path / "src", "frame", "") == "4.0"
    assert stated_version(tmp_path / "lib", "frame", "") == ""
