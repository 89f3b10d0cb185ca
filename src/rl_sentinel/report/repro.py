"""The repro report: a stand-alone script with torch and the framework only."""

from rl_sentinel.audit.findings import Finding


def script(f: Finding, packages: str) -> str:
    """A script of a few lines; its first line names the packages that it needs."""
    e = f.evidence
    torch = str(e["environment"]["torch"]).partition("+")[0]
    first = f"# pip install torch=={torch} {packages or 'numpy'}"
    says = f"# {f.law} {e['law_name']}: {e['expected_invariant']}"
    return "\n".join([first, says, *e["script"]]) + "\n"
