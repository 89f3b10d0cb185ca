"""The key of a stored narrow audit."""

from dataclasses import replace

from rl_sentinel.audit.sandbox.request import Request
from rl_sentinel.recall import narrow_audit


def test_key_of_a_revision() -> None:
    """Two revisions with an equal package may differ in examples beside it."""
    target = {"spec": "slime@x#1", "commit": "1", "digest": "equal"}
    one = Request(task="audit", framework="slime", root="x", version="", target=target)
    other = replace(one, target={**target, "commit": "2"})
    keys = [narrow_audit._key(job, "python") for job in (one, other, one)]
    assert keys[0] == keys[2] != keys[1]
