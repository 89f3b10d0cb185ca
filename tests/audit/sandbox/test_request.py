"""A request goes through JSON and comes back the same."""

import json

import pytest

from rl_sentinel.audit.sandbox.request import Request, from_json


def test_round_trip() -> None:
    request = Request(
        task="replay",
        framework="verl",
        root="/r",
        version="1",
        overlays=("/a", "/b"),
        laws=("MSK001",),
        seed=3,
        records=({"law": "MSK001", "rows": [1, 2]},),
        target={"spec": "verl@/r"},
    )
    assert from_json(json.loads(json.dumps(request.as_json()))) == request


def test_unknown_key_is_refused() -> None:
    with pytest.raises(TypeError, match="color"):
        from_json({"task": "audit", "framework": "f", "root": "", "version": "", "color": 1})
