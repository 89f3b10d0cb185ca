"""Format one cause as lines of text: the fault, its location, the batch, the conditions, and the advice."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from rl_sentinel.audit.findings import Finding, other_law
from rl_sentinel.report.advice import advice
from rl_sentinel.report.formatting import WIDTH, counted, two_values, wrapped
from rl_sentinel.report.scenario import conditions, has_batch, scenario

#: Column where the text after a label starts.
_INDENT = " " * 12

#: A counterexample with more rows or tokens than this gets a note that it could not be shrunk further.
_ROWS, _TOKENS = 3, 4

#: Most places, and most wrongly accepted or refused settings, that are listed.
_PLACES, _ATTEMPTS = 12, 6

#: Most lines of one value, and of a place with its setting.
_VALUE_LINES, _WHERE_LINES = 2, 3


def block(findings: Sequence[Finding]) -> list[str]:
    """The lines of a block: the first finding in full, then the boundaries and settings of the other findings."""
    first = findings[0]
    e = first.evidence
    lines = wrapped(f"{level(first)} {first.law} {sentence(e)}", hanging="  ", lines=5)
    lines += _labeled("where", _location(first), lines=_WHERE_LINES)
    lines += [*_input(first), *_output(e)] if has_batch(e) else _labeled("outputs", also_broken(e), lines=1)
    lines += _labeled("when", when(e))
    lines += _labeled("fix", advice(e))
    if first.level == "contested":
        lines += _labeled("intended?", str(e["could_be_intended"]), lines=3)
    if first.known or first.known_from:
        source = f"{first.known_from}: " if first.known_from and first.accepted else ""
        lines += _labeled("known", f"{source}{first.known or 'without a reason'}")
    lines += _labeled("new here", first.elsewhere, lines=3)
    lines += _labeled("level", first.level_note)
    return lines + _places(findings)


def level(f: Finding) -> str:
    """The level, or ``accepted`` for a finding in the user's known file."""
    return "accepted" if f.accepted else f.level


def when(e: Mapping[str, Any]) -> str:
    """The configuration that reaches the boundary; then the special properties of the batch, if it has any."""
    reach = _with_listed_value(e, str(e["reach"])) or "any run that calls this function"
    condition = conditions(e) if has_batch(e) else ""
    return f"{reach}, {condition}" if condition else reach


def _with_listed_value(e: Mapping[str, Any], reach: str) -> str:
    """``reach``; if the code refused a value that it lists as allowed, with this value in place of the setting's."""
    listed = e["expectation"].get("listed")
    value = e["knobs"].get(listed["name"]) if listed else None
    return re.sub(rf"=(?:{re.escape(str(value))})\b", lambda _: f"={listed['value']}", reach) if value else reach


def also_broken(e: Mapping[str, Any]) -> str:
    """The other outputs of this boundary that break the law, on this batch or another."""
    names = e.get("outputs", {}).get("broken", [])[1:]
    return f"also wrong at {', '.join(names)}" if names else ""


def _labeled(label: str, text: str, *, lines: int = 0) -> list[str]:
    return wrapped(text, indent=f"  {label:<10}", hanging=_INDENT, lines=lines) if text else []


def sentence(e: Mapping[str, Any]) -> str:
    """The fault in one sentence; for settings, it lists the settings that are wrongly accepted or refused."""
    expectation = e["expectation"]
    if expectation["kind"] != "Refuses":
        return str(expectation["sentence"])
    wrong = _wrong(expectation)
    fault = "valid settings refused" if expectation["accepts"] else "invalid settings accepted"
    listed = "; ".join(f"{a['name']} ({a['reason']})" for a in wrong[:_ATTEMPTS])
    more = f"; and {len(wrong) - _ATTEMPTS} more" if len(wrong) > _ATTEMPTS else ""
    return f"{len(wrong)} of {len(expectation['attempts'])} {fault}: {listed}{more}"


def _wrong(expectation: Mapping[str, Any]) -> list[Any]:
    return [expectation["attempts"][cell[0]] for cell in expectation["broken"]["cells"]]


def _location(f: Finding) -> str:
    """Function, setting, file and line, and the values of the setting that ``when`` does not state."""
    source, stated = f.evidence["source"], str(f.evidence["reach"]).lower()
    knobs = {name: f"{name}={value}" for name, value in f.evidence["knobs"].items() if value not in ("", None)}
    values = ", ".join(text for text in knobs.values() if text.lower() not in stated)
    names = " -> ".join(_short(path, source["file"]) for path in f.boundary.split(" -> "))
    setting = "" if f.setting == "default" else f" [{f.setting}]"
    return f"{names}{setting} ({source['file']}:{source['line']}){f', with {values}' if values else ''}"


def _short(path: str, file: str) -> str:
    """A dotted path without the module, which the file name shows; a path of another module keeps its last names."""
    module = file.removesuffix(".py").replace("/", ".")
    if path.startswith(f"{module}."):
        return path.removeprefix(f"{module}.")
    names = path.split(".")
    start = next((n for n, name in enumerate(names) if name[:1].isupper()), len(names) - 1)
    return ".".join(names[max(0, start - 1) :])


def _input(f: Finding) -> Iterator[str]:
    columns = scenario(f.evidence)
    if f.rows > _ROWS or f.tokens > _TOKENS:
        size = f"{counted(f.rows, 'row')} x {counted(f.tokens, 'token')}; no smaller batch shows it"
        yield from _labeled("input", size)
    wide = max((len(name) for name, _ in columns), default=0) + 2
    for number, (name, values) in enumerate(columns):
        label = "  input     " if number == 0 and f.rows <= _ROWS and f.tokens <= _TOKENS else _INDENT
        start = f"{label}{name:<{wide}}"
        yield from wrapped(values, indent=start, hanging=" " * len(start), lines=_VALUE_LINES)


def _output(e: Mapping[str, Any]) -> list[str]:
    """The lines of the result, then of the other outputs that are wrong."""
    got, expected = _got_and_expected(e["expectation"])
    also = also_broken(e)
    if got and also and len(got[-1]) + len(also) + 2 <= WIDTH:
        return [*got[:-1], f"{got[-1]}; {also}", *expected]
    return got + expected + _labeled("outputs", also, lines=1)


def _got_and_expected(expectation: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    results = _results(expectation)
    if not results:
        return [], []
    output, expected = results[0]["output"], results[0]["expected"]
    before, observed = two_values(expected, results[0]["observed"])
    if expectation["kind"] == "Moves":
        values = f"{before} before and after" if before == observed else f"{before} -> {observed}"
        return _labeled("got", f"{output} {values}", lines=_VALUE_LINES), []
    words = expectation["sentence"].replace(",", " ").replace(":", " ").lower().split()
    if {before.strip("[]"), observed.strip("[]")} - {"None"} <= {*words}:
        return [], []
    got = _labeled("got", f"{output} {observed}", lines=_VALUE_LINES)
    if expected is None:
        return got, []
    since = ", as before the change" if expectation["change"] else ""
    return got, _labeled("expected", f"{output} {before}{since}", lines=_VALUE_LINES)


def _results(expectation: Mapping[str, Any]) -> list[Any]:
    """The result of the wrong output, or the first result if that output has none."""
    results = expectation["results"]
    return [r for r in results if r["output"] == expectation["output"]][:1] or results[:1]


def _places(findings: Sequence[Finding]) -> list[str]:
    """Other places with the same cause, grouped by boundary, and other laws that they break."""
    _, *rest = findings
    listed = [f"{f.boundary} [{f.setting}]" for f in rest]
    also = [place for f in findings for place in f.also]
    same = [place for place in also if not other_law(place)]
    settings = _settings_by_boundary([*listed, *same])
    if not settings and not also:
        return []
    laws = sorted({other_law(place) for place in also} - {""})
    through = f" (they break {', '.join(laws)} too)" if laws and settings else ""
    if not settings:
        return _labeled("also", f"breaks {', '.join(laws)} here")
    lines = _labeled("also at", f"{counted(len(listed) + len(same), 'place')} with the same cause{through}:")
    for boundary, names in list(settings.items())[:_PLACES]:
        line = boundary if names == ["default"] else f"{boundary} [{'; '.join(names)}]"
        lines += wrapped(line, indent="    ", hanging="      ")
    if len(settings) > _PLACES:
        lines.append(f"    and {len(settings) - _PLACES} more: --json PATH has all")
    return lines


def _settings_by_boundary(places: Iterable[str]) -> dict[str, list[str]]:
    settings: dict[str, list[str]] = {}
    for place in places:
        boundary, _, setting = place.rpartition(" [")
        settings.setdefault(boundary, []).append(setting.removesuffix("]"))
    return settings
