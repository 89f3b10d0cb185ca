"""The repro report: a stand-alone script that needs only torch and the framework."""

from rl_sentinel.adapters.installation import Installation
from rl_sentinel.audit.findings import Finding


def script(f: Finding, needs: Installation) -> str:
    """A short script; its first line is the command that installs its environment."""
    e = f.evidence
    torch = str(e["environment"]["torch"]).partition("+")[0]
    install = f"# {needs.command(torch)}"
    claim = f"# {f.law} {e['law_name']}: {e['expectation']['sentence']}"
    return "\n".join([install, claim, *needs.lines(list(e["script"]))]) + "\n"
