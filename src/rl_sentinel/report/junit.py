"""The JUnit XML report: a test case for each pair of law and boundary, for CI systems that show test results."""

from collections.abc import Sequence
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from rl_sentinel.core.verdict import Verdict
from rl_sentinel.report.finding_block import block
from rl_sentinel.report.results import Results, fails


def as_junit(results: Sequence[Results]) -> str:
    """A test suite for each target.

    A finding that makes the exit status 1 is a failure, an errored pair an error, and a pair that is not applicable is
    skipped. Hazards, accepted findings and findings below the shown level pass, with their sentence as output.
    """
    root = Element("testsuites", name="rl-sentinel")
    for target in results:
        root.append(_suite(target))
    indent(root)
    return tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _suite(results: Results) -> Element:
    suite = Element("testsuite", name=results.target, time=f"{results.seconds:.2f}")
    verdicts = sorted(results.audit.verdicts, key=lambda v: (v.boundary, v.setting, v.law))
    for verdict in verdicts:
        suite.append(_case(results, verdict))
    suite.set("tests", str(len(verdicts)))
    for name, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        suite.set(name, str(len(suite.findall(f"testcase/{tag}"))))
    return suite


def _case(results: Results, verdict: Verdict) -> Element:
    case = Element("testcase", classname=verdict.boundary, name=f"{verdict.law} [{verdict.setting}]")
    if verdict.outcome == "errored":
        SubElement(case, "error", message=_printable(verdict.reason))
    elif verdict.outcome == "not-applicable":
        SubElement(case, "skipped", message=_printable(verdict.reason))
    elif verdict.outcome == "broken":
        _broken(case, results, verdict)
    return case


def _broken(case: Element, results: Results, verdict: Verdict) -> None:
    sentence = _printable(str(verdict.evidence["expectation"]["sentence"]))
    finding = results.finding_of(verdict.evidence)
    if finding is None or not fails(finding):
        SubElement(case, "system-out").text = f"{verdict.evidence['level']}: {sentence}"
        return
    failure = SubElement(case, "failure", type=finding.level, message=sentence)
    is_cause = str(verdict.evidence["signature"]) == finding.signature
    same = f"same cause as {finding.law} at {finding.boundary} [{finding.setting}]"
    failure.text = _printable("\n".join(block([finding])) if is_cause else same)


def _printable(text: str) -> str:
    """The text with ``?`` in place of control characters, which XML cannot hold."""
    return "".join(c if c in "\n\t" or ord(c) >= ord(" ") else "?" for c in text)
