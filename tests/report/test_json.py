"""The JSON report."""

import json

from report_fixtures import SENTENCE, evidence, finding
from rl_sentinel.audit.findings import Audit
from rl_sentinel.core.verdict import Verdict
from rl_sentinel.report.json import as_json


def test_object_has_its_keys() -> None:
    audit = Audit(boundaries=1, pairs=3)
    audit.verdicts += [
        Verdict(law="MSK001", boundary="m.estimator", setting="default", outcome="holds", tried=3),
        Verdict(law="MSK002", boundary="m.estimator", setting="default", outcome="errored", reason="no"),
        Verdict(law="MSK001", boundary="m.f", setting="s", outcome="broken", tried=1, evidence=evidence()),
    ]
    made = json.loads(json.dumps(as_json("verl==1.0", audit, [finding()], 1.234)))
    assert made["target"] == "verl==1.0"
    assert made["counts"] == {"holds": 1, "broken": 1, "not_applicable": 0, "errored": 1}
    assert made["coverage"] == {"boundaries": 1, "pairs": 3, "tried": 2, "cases": 4}
    assert made["seconds"] == 1.23
    [found] = made["findings"]
    assert (found["rows"], found["tokens"], found["evidence"]["law"]) == (2, 1, "MSK001")
    assert [v["reason"] for v in made["verdicts"]] == ["", "no", ""]
    broken = made["verdicts"][2]
    assert (broken["level"], broken["status"], broken["sentence"]) == ("fault", "reproduced", SENTENCE)
