"""slime's multi-agent example, on a specimen of its call shapes in words of our own."""

import pytest

from adapters.checks import Loads, answering, check_verdict, judged_at, rewritten, the_only
from adapters.kit.round_trip import check_round_trip
from adapters.slime_specimen import SAMPLE
from rl_sentinel.adapters.slime import FRAMEWORK
from rl_sentinel.adapters.slime.multi_agent import boundaries
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.laws.tokens_or_samples_lost import LAW as PLC004

SYSTEM = """
    from copy import deepcopy

    from slime.utils.http import post

    async def generate_response(args, prompt, key):
        made = deepcopy(args.sample)
        ids = args.tokenizer(prompt)["input_ids"]
        reply = await post("url", {"input_ids": ids, "sampling_params": dict(args.sampling_params)})
        pairs = reply["meta_info"]["output_token_logprobs"]
        made.tokens = START + [pair[1] for pair in pairs]
        made.response_length = len(pairs)
        made.rollout_log_probs = [pair[0] for pair in pairs] if KEPT else None
        args.results_dict[key].append(made if COLLECTED else deepcopy(args.sample))
"""

SOUND = {"START": "ids", "KEPT": "True", "COLLECTED": "True"}


def _bound(loads: Loads, **broken: str) -> tuple[Target, Boundary]:
    source = rewritten(SYSTEM, SOUND | broken)
    tree = {
        "slime/__init__.py": "",
        "slime/utils/http.py": "post = None\n",
        "slime/utils/types.py": SAMPLE,
        "examples/multi_agent/agent_system.py": source,
    }
    target = loads(FRAMEWORK, tree)
    return target, the_only(boundaries(target))


def test_sound(loads: Loads) -> None:
    target, boundary = _bound(loads)
    assert answering({("agent", "one agent"): boundary}, target) == []
    check_verdict(PLC004, boundary, "one agent", target, found=False)
    check_round_trip(target, boundary)


@pytest.mark.parametrize(
    ("broken", "output"), [({"KEPT": "False"}, "rollout_logprob"), ({"START": "ids[1:]"}, "token")]
)
def test_broken(loads: Loads, broken: dict[str, str], output: str) -> None:
    """Log-probs that are dropped, and a prompt without its first token."""
    target, boundary = _bound(loads, **broken)
    found = judged_at(PLC004, boundary, "one agent", target).found
    assert found is not None
    assert found.expectation.name == output
