"""Print an audit's JSON report as an expectation file."""

import json
import sys
from pathlib import Path

from rl_sentinel.audit.known import written

report = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
pairs = ((f["signature"], f["level"], f["also"]) for f in report["findings"])
sys.stdout.write("# Exactly what an audit shows; `make expect` rewrites it.\n" + written(pairs, report["counts"]))
