"""Turn an audit's JSON report into the expectation file, or into the findings that the report's test renders.

python scripts/expectation.py REPORT.json > expect/verl-0.9.1.toml
python scripts/expectation.py --findings REPORT.json > tests/report/verl-0.9.1.json
"""

import json
import sys
from dataclasses import fields
from pathlib import Path

from rl_sentinel.audit.expectation import refusals
from rl_sentinel.audit.known import expectation_text
from rl_sentinel.core.verdict import Verdict

*options, path = sys.argv[1:]
report = json.loads(Path(path).read_text(encoding="utf-8"))
if options == ["--findings"]:
    lines = [json.dumps({**f, "evidence": {**f["evidence"], "script": []}}) for f in report["findings"]]
    sys.stdout.write("[\n" + ",\n".join(lines) + "\n]\n")
else:
    shown = ((f["signature"], f["level"], f["also"]) for f in report["findings"] if f["level"] != "hazard")
    own = {field.name for field in fields(Verdict)}
    verdicts = [Verdict(**{k: v for k, v in verdict.items() if k in own}) for verdict in report["verdicts"]]
    text = expectation_text(shown, report["counts"], refusals(verdicts))
    sys.stdout.write(f"# Exactly what an audit shows; `make expect` rewrites it.\n{text}")
