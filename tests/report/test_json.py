"""The JSON report."""

import json

from pydantic import TypeAdapter

from report_fixtures import SENTENCE, evidence, finding
from rl_sentinel.audit.findings import Audit
from rl_sentinel.core.verdict import Verdict
from rl_sentinel.report.json import Report, as_json
from rl_sentinel.report.results import Results


def test_object_has_its_keys() -> None:
    audit = Audit(boundaries=1, pairs=3)
    audit.verdicts += [
        Verdict(law="MSK002", boundary="m.estimator", setting="default", outcome="errored", reason="no"),
        Verdict(law="MSK001", boundary="m.estimator", setting="default", outcome="holds", tried=3),
        Verdict(law="MSK001", boundary="m.f", setting="s", outcome="broken", tried=1, evidence=evidence()),
    ]
    results = Results(target="verl==1.0", audit=audit, findings=[finding()], seconds=1.234, seed=7, status=1)
    made = json.loads(json.dumps(as_json(results)))
    assert (made["seed"], made["status"]) == (7, 1)
    assert made["target"] == "verl==1.0"
    assert made["counts"] == {"holds": 1, "broken": 1, "not_applicable": 0, "errored": 1}
    assert made["coverage"] == {"boundaries": 1, "pairs": 3, "tried": 2, "cases": 4}
    assert made["seconds"] == 1.23
    [found] = made["findings"]
    assert (found["rows"], found["tokens"], found["evidence"]["law"]) == (2, 1, "MSK001")
    assert TypeAdapter(Report).validate_python(made) == made
    # By boundary, setting and law.
    assert [v["law"] for v in made["verdicts"]] == ["MSK001", "MSK002", "MSK001"]
    assert [v["reason"] for v in made["verdicts"]] == ["", "no", ""]
    broken = made["verdicts"][2]
    assert (broken["level"], broken["status"], broken["sentence"]) == ("fault", "reproduced", SENTENCE)
