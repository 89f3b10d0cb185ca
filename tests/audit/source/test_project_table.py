"""The table of pyproject.toml: what it holds, where it is looked for, and what is wrong with it in one line."""

from pathlib import Path

import pytest

from rl_sentinel.audit.source.project_table import project_file, read_project
from rl_sentinel.core.errors import SentinelError

HEAD = '[tool.rl-sentinel.functions."mine:f"]\n'


def project(folder: Path, text: str) -> Path:
    file = folder / "pyproject.toml"
    file.write_text(text, encoding="utf-8")
    return file


def test_table_is_read_from_a_folder_below(tmp_path: Path) -> None:
    file = project(
        tmp_path,
        '[tool.rl-sentinel]\nlevel = "fault"\nknown = "known.toml"\nseed = 3\n'
        f'{HEAD}stage = "advantage"\nalgorithm = "grpo"\naxes = {{ rewards = "B" }}\n'
        'bind = { beta = 1, x = "mask" }\n'
        "claims = { standardized = false }\nnumbers = { clip_low = 0.2 }\n",
    )
    below = tmp_path / "a" / "b"
    below.mkdir(parents=True)
    (tmp_path / "a" / "pyproject.toml").write_text("[tool.other]\n", encoding="utf-8")
    assert project_file(below) == file
    found = read_project(below)
    table = found.table
    assert (table.level, table.known, table.seed, table.budget) == ("fault", "known.toml", 3, 16)
    one = table.functions["mine:f"]
    assert (one.stage, one.algorithm, one.axes, one.bind) == (
        "advantage",
        "grpo",
        {"rewards": "B"},
        {"beta": 1, "x": "mask"},
    )
    assert (one.claims, one.numbers, one.level) == ({"standardized": False}, {"clip_low": 0.2}, None)
    assert found.place("mine:f") == f"{file}[tool.rl-sentinel.functions.'mine:f']"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            f'{HEAD}stge = "advantage"\n',
            """[tool.rl-sentinel.functions."mine:f".stge] is unknown, the nearest is 'stage'""",
        ),
        (
            f'[tool.rl-sentinel]\nnown = ""\n{HEAD}stage = "kl"\n',
            "[tool.rl-sentinel.nown] is unknown, the nearest is 'known'",
        ),
        (
            f'[tool.rl-sentinel]\nzzz = ""\n{HEAD}stage = "kl"\n',
            "[tool.rl-sentinel.zzz] is unknown, expected one of functions, level, known, ignore, seed, budget",
        ),
        (
            HEAD,
            (
                '[tool.rl-sentinel.functions."mine:f".stage] is missing: state what the function computes, as in '
                'stage = "advantage" (docs/project.md)'
            ),
        ),
        (f"{HEAD}stage = 3\n", '[tool.rl-sentinel.functions."mine:f".stage] is 3, expected a string'),
        (
            f'{HEAD}stage = "kl"\nbind.rewards = ["a"]\n',
            (
                "[tool.rl-sentinel.functions.\"mine:f\".bind.rewards] is ['a'], expected a string or a boolean or "
                "a number or a table"
            ),
        ),
        (
            f'{HEAD}stage = "kl"\nlaws = [1]\n',
            '[tool.rl-sentinel.functions."mine:f".laws.0] is 1, expected a string',
        ),
        (
            f'{HEAD}stage = "kl"\nalgorithm = ""\n',
            "[tool.rl-sentinel.functions.\"mine:f\".algorithm] is '', expected a name",
        ),
        (
            f'{HEAD}stage = "kl"\nlaws = []\n',
            '[tool.rl-sentinel.functions."mine:f".laws] is [], expected at least one entry',
        ),
        (
            '[tool.rl-sentinel.functions]\n"mine:f" = 1\n',
            '[tool.rl-sentinel.functions."mine:f"] is 1, expected a table',
        ),
        (
            f'[tool.rl-sentinel]\nbudget = 1\n{HEAD}stage = "kl"\n',
            "[tool.rl-sentinel.budget] is 1, expected 2 or more",
        ),
        (
            f'[tool.rl-sentinel]\nlevel = "worst"\n{HEAD}stage = "kl"\n',
            "[tool.rl-sentinel.level] is 'worst', expected 'fault', 'contested' or 'hazard'",
        ),
        (
            "[tool.rl-sentinel]\n",
            (
                "[tool.rl-sentinel.functions] is missing: list functions, as in "
                '[tool.rl-sentinel.functions."mine:advantages"] (docs/project.md)'
            ),
        ),
        (
            "[tool.rl-sentinel.functions]\n",
            (
                "[tool.rl-sentinel.functions] is empty, expected at least one function: list functions, as in "
                '[tool.rl-sentinel.functions."mine:advantages"]'
            ),
        ),
    ],
)
def test_wrong_table_is_one_line(tmp_path: Path, text: str, words: str) -> None:
    file = project(tmp_path, text)
    with pytest.raises(SentinelError) as told:
        read_project(tmp_path)
    assert str(told.value) == f"{file}{words}"


def test_a_byte_order_mark_is_read_over(tmp_path: Path) -> None:
    project(tmp_path, "\ufeff" + f'{HEAD}stage = "kl"\n')
    assert read_project(tmp_path).table.functions["mine:f"].stage == "kl"


def test_malformed_file_and_no_file(tmp_path: Path) -> None:
    file = project(tmp_path, "[tool.rl-sentinel]\nx = \n")
    with pytest.raises(SentinelError) as told:
        read_project(tmp_path)
    assert str(told.value).startswith(f"{file} is malformed (Invalid value")
    file.write_text("[tool.other]\n", encoding="utf-8")
    with pytest.raises(SentinelError, match=r"^no TARGET is given, and no pyproject.toml in .* has \["):
        read_project(tmp_path)


def test_the_cause_is_named_where_no_header_can_be_read(tmp_path: Path) -> None:
    file = tmp_path / "pyproject.toml"
    for content, words in (
        (b"\xff\xfe", f"{file} is not UTF-8 ("),
        (b"tool = 3\n", f"{file}[tool] is 3, expected a table"),
        (b"[tool]\nrl-sentinel = 3\n", f"{file}[tool.rl-sentinel] is 3, expected a table"),
    ):
        file.write_bytes(content)
        with pytest.raises(SentinelError) as error:
            read_project(tmp_path)
        assert str(error.value).startswith(words)
    file.unlink()
    file.mkdir()
    with pytest.raises(SentinelError) as error:
        read_project(tmp_path)
    assert str(error.value) == f"{file} is a folder, expected a file in TOML: rename the folder"


def test_a_table_inside_of_tool_is_read(tmp_path: Path) -> None:
    file = project(tmp_path, '[tool]\nrl-sentinel = { functions = { "mine:f" = { stage = "kl" } } }\n')
    assert project_file(tmp_path) == file
    assert read_project(tmp_path).table.functions["mine:f"].stage == "kl"


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-be", "utf-32", "cp1252"])
def test_a_file_in_another_encoding_is_named(tmp_path: Path, encoding: str) -> None:
    file = tmp_path / "pyproject.toml"
    file.write_text(f'[tool.rl-sentinel]\nknown = "größer"\n{HEAD}stage = "kl"\n', encoding=encoding)
    with pytest.raises(SentinelError) as told:
        read_project(tmp_path)
    assert str(told.value).startswith(f"{file} is not UTF-8 (")
    assert "\n" not in str(told.value)


@pytest.mark.parametrize("number", ["inf", "nan"])
def test_numbers_are_finite(tmp_path: Path, number: str) -> None:
    file = project(tmp_path, f'{HEAD}stage = "kl"\nnumbers = {{ clip_low = {number} }}\n')
    with pytest.raises(SentinelError) as told:
        read_project(tmp_path)
    place = f'{file}[tool.rl-sentinel.functions."mine:f".numbers.clip_low]'
    assert str(told.value) == f"{place} is {number}, expected a finite number"
