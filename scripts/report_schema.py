"""Write docs/report.schema.json: the JSON schema of what ``rl-sentinel audit --json`` writes.

Usage: ``python scripts/report_schema.py``.
"""

import json
from pathlib import Path

from rl_sentinel.report.json import schema

PAGE = Path(__file__).parents[1] / "docs" / "report.schema.json"


def page() -> str:
    """The schema as text."""
    return json.dumps(schema(), indent=1) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
