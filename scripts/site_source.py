"""Write the source of the documentation site: the pages of the repository, and those generated from the code.

Usage: ``python scripts/site_source.py FOLDER``; ``make docs`` then builds it with Zensical. A broken link fails there.
"""

import importlib
import inspect
import re
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path

import tomlkit

import rl_sentinel.laws
from rl_sentinel.core.modules import defined

ROOT = Path(__file__).parents[1]

#: Pages of the site by section: title -> file of the repository.
SECTIONS: Mapping[str, Mapping[str, str]] = {
    "Start": {"Overview": "README.md", "Tutorial": "docs/tutorial.md", "A GRPO step": "docs/grpo-step.md"},
    "How to": {
        "Audit your own functions": "docs/own-functions.md",
        "Set up a project, CI and pre-commit": "docs/project.md",
        "Audit a framework": "docs/frameworks.md",
        "Replace an estimator of verl or SkyRL": "docs/remedies.md",
        "Train": "docs/train.md",
        "Write a law or an adapter": "CONTRIBUTING.md",
    },
    "Reference": {
        "Command line": "docs/command-line.md",
        "Claims": "docs/claims.md",
        "The signal library": "docs/signal.md",
        "Findings of today": "docs/findings.md",
    },
    "Explanation": {
        "Architecture": "ARCHITECTURE.md",
        "What a verdict means": "docs/verdicts.md",
        "Limits": "docs/limits.md",
        "Comparison with other tools": "docs/comparison.md",
        "Recall on known bugs": "docs/recall.md",
        "Recall between commits": "docs/recall-commits.md",
        "Mutants": "docs/mutants.md",
        "Mutants of frameworks": "docs/framework-mutants.md",
        "Proof": "docs/proof.md",
        "Training runs": "docs/train-proof.md",
        "Training runs of SmolLM2": "docs/smollm2-proof.md",
        "Training runs of SmolLM2 on GPUs": "docs/smollm2-proof-gpu.md",
        "Releases": "docs/release.md",
    },
}

#: Other files that pages link to.
LINKED = ("docs/decisions", "benchmarks", "examples/README.md")

#: Folders of the signal library that users do not call.
INTERNAL = ("kernels",)


def main(folder: Path) -> None:
    """Write the pages and the configuration."""
    shutil.rmtree(folder, ignore_errors=True)
    pages = folder / "pages"
    for file in _repository_files():
        target = pages / ("index.md" if file == "README.md" else file)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / file, target)
    generated = {"docs/command-line.md": _command_line(), **dict(_law_pages()), **dict(_signal_pages())}
    for file, text in generated.items():
        target = pages / file
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
    _copy_source(folder / "source")
    absent = [file for section in SECTIONS.values() for file in section.values() if not _written(pages, file)]
    if absent:
        raise SystemExit(f"no file for {', '.join(absent)}: correct SECTIONS in {__file__}")
    (folder / "zensical.toml").write_text(tomlkit.dumps({"project": _project(sorted(generated))}))


def _written(pages: Path, file: str) -> bool:
    return (pages / ("index.md" if file == "README.md" else file)).is_file()


def _copy_source(folder: Path) -> None:
    """The modules whose docstrings are shown, with the name of the section that mkdocstrings takes for code."""
    for path in (ROOT / "src").rglob("*.py"):
        target = folder / path.relative_to(ROOT / "src")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(re.sub(r"(?m)^( +)Example:$", r"\1Examples:", path.read_text()))


def _repository_files() -> Iterator[str]:
    named = [file for section in SECTIONS.values() for file in section.values() if (ROOT / file).is_file()]
    linked = [p for name in LINKED for p in ([ROOT / name] if (ROOT / name).is_file() else (ROOT / name).rglob("*.md"))]
    yield from dict.fromkeys([*named, *(str(path.relative_to(ROOT)) for path in linked)])


def _command_line() -> str:
    """The help of all commands, by typer's own generator."""
    command = [sys.executable, "-m", "typer", "rl_sentinel.cli.main", "utils", "docs", "--name", "rl-sentinel"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def _law_pages() -> Iterator[tuple[str, str]]:
    found = {law.code: (law.name, module) for module, law in defined(rl_sentinel.laws, "LAW").items()}
    rows = []
    for code, (name, module) in sorted(found.items()):
        yield (
            f"laws/{code}.md",
            as_markdown(inspect.getdoc(importlib.import_module(f"rl_sentinel.laws.{module}")) or ""),
        )
        rows.append(f"| [{code}]({code}.md) | {name} |")
    yield "laws/index.md", "\n".join(["# Laws", "", "| code | name |", "|---|---|", *rows, ""])


def as_markdown(page: str) -> str:
    """The page of a law: its first line is the title, each section a heading, an example a block of code."""
    title, _, body = page.partition("\n")
    parts = [f"# {title.rstrip('.')}"]
    for heading, block in groupby(body.splitlines(), key=lambda line: bool(line) and not line.startswith(" ")):
        if heading:
            parts += [f"## {line.rstrip(':')}" for line in block]
            continue
        paragraphs = textwrap.dedent("\n".join(block)).strip("\n").split("\n\n")
        parts += [f"```pycon\n{text}\n```" if text.startswith(">>>") else text for text in paragraphs if text]
    return "\n\n".join(parts) + "\n"


def _signal_pages() -> Iterator[tuple[str, str]]:
    source = ROOT / "src"
    for path in sorted((source / "rl_sentinel" / "signal").rglob("*.py")):
        inside = path.relative_to(source).with_suffix("")
        if path.name == "__init__.py" or set(inside.parts) & set(INTERNAL):
            continue
        name = ".".join(inside.parts)
        yield f"signal/{'.'.join(inside.parts[2:])}.md", f"# {name}\n\n::: {name}\n"


def _project(generated: Sequence[str]) -> Mapping[str, object]:
    """The configuration of Zensical: the pages in order, and docstrings read from the source."""
    nav: list[object] = []
    for title, section in SECTIONS.items():
        pages: list[object] = [{name: "index.md" if file == "README.md" else file} for name, file in section.items()]
        if title == "Reference":
            pages.append({"Laws": [{_stem(file): file} for file in generated if file.startswith("laws/")]})
            pages.append(
                {"rl_sentinel.signal": [{_stem(file): file} for file in generated if file.startswith("signal/")]}
            )
        nav.append({title: pages})
    options = {"docstring_style": "google", "show_source": False, "show_root_heading": False, "heading_level": 2}
    return {
        "site_name": "RL-Sentinel",
        "docs_dir": "pages",
        "site_dir": "site",
        "nav": nav,
        "plugins": {"mkdocstrings": {"handlers": {"python": {"paths": ["source"], "options": options}}}},
    }


def _stem(file: str) -> str:
    name = file.rpartition("/")[2].removesuffix(".md")
    return "All laws" if name == "index" else name


if __name__ == "__main__":
    main(Path(sys.argv[1]))
