"""The repro report: a stand-alone script with torch and the framework only."""

from rl_sentinel.adapters.installation import Installation
from rl_sentinel.audit.findings import Finding


def script(f: Finding, needs: Installation) -> str:
    """A script of a few lines; its first line prepares an environment in which it runs."""
    e = f.evidence
    torch = str(e["environment"]["torch"]).partition("+")[0]
    first = f"# {needs.command(torch)}"
    says = f"# {f.law} {e['law_name']}: {e['expectation']['sentence']}"
    return "\n".join([first, says, *needs.lines(list(e["script"]))]) + "\n"
