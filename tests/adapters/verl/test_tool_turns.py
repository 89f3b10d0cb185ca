"""verl's agent loop with tools, on a specimen in words of our own."""

import json
from types import SimpleNamespace

import pytest

from adapters.checks import Loads, bound, check_verdict, rewritten
from adapters.kit.round_trip import check_round_trips
from adapters.verl.omegaconf_specimen import OMEGACONF
from adapters.verl_specimen import files
from rl_sentinel.adapters.kit.chat_template import END, REPLY, ChatTokenizer
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.verl import FRAMEWORK
from rl_sentinel.adapters.verl.tool_turns import count_wrong
from rl_sentinel.laws.conversation_tokens_differ import LAW as TOK001

BASE = """
    class AgentLoopBase:
        def __init__(self, trainer_config, server_manager, tokenizer, dataset_cls, **about):
            self.rollout, self.server = trainer_config.config.actor_rollout_ref.rollout, server_manager
            self.tokenizer = tokenizer
"""

#: The constructor of earlier releases, which read the options once per class.
OLDER = """
    class AgentLoopBase:
        known = False

        def __init__(self, trainer_config, server_manager, tokenizer, **about):
            self.read(trainer_config.config, tokenizer)
            self.server = server_manager

        @classmethod
        def read(cls, config, tokenizer):
            if not getattr(cls, "_class_initialized", False):
                cls._class_initialized = True
                cls.rollout, cls.tokenizer = config.actor_rollout_ref.rollout, tokenizer
                cls.system = tokenizer.apply_chat_template([{}])
"""

#: A constructor of February 2026, which gets the options of the data set in a wrapper.
WRAPPED = BASE.replace("dataset_cls, **about", "dataset_cls, dataset_config, **about") + (
    """
            self.template_options = dataset_config.config.get("apply_chat_template_kwargs", {})
"""
)

SCHEMAS = """
    from types import SimpleNamespace

    class ToolResponse(SimpleNamespace):
        pass
"""

PARSER = """
    from types import SimpleNamespace

    class FunctionCall(SimpleNamespace):
        pass
"""

LOOP = """
    import json
    from types import SimpleNamespace

    from verl.experimental.agent_loop.agent_loop import AgentLoopBase

    class ToolAgentLoop(AgentLoopBase):
        async def run(self, sampling_params, raw_prompt, **about):
            text, limit = self.tokenizer.apply_chat_template, self.rollout.response_length
            empty = {"role": "user", "content": ""}
            one, two = text([empty]), text([empty] * 2)
            system = 2 * len(one) - len(two)
            prompt = text(raw_prompt, add_generation_prompt=True)
            ids, mask, logprobs = [], [], []
            while len(ids) < limit:
                output = await self.server.generate(prompt_ids=prompt + ids)
                ids, experts = ids + output.token_ids, output.routed_experts
                mask += [1] * len(output.token_ids)
                logprobs += output.log_probs
                _, calls = await self.tool_parser.extract_tool_calls(output.token_ids)
                if not calls or len(ids) >= limit:
                    break
                results = []
                for call in calls:
                    tool = self.tools[call.name]
                    result, _, _ = await tool.execute("", json.loads(call.arguments))
                    results.append({"role": "tool", "content": result.text})
                turn = SEPARATOR + text(results, add_generation_prompt=True)[system:]
                if len(ids) + len(turn) >= limit:
                    break
                ids += turn
                mask += [TOOL] * len(turn)
                logprobs += GAP
            return SimpleNamespace(
                prompt_ids=prompt,
                response_ids=ids[:limit],
                response_mask=CUT,
                response_logprobs=logprobs[:limit],
                routed_experts=EXPERTS,
            )
"""

SOUND = {
    "SEPARATOR": "one[-1:]",
    "TOOL": "0",
    "GAP": "[0.0] * len(turn)",
    "CUT": "mask[:limit]",
    "EXPERTS": "experts[: len(prompt) + limit]",
}
CONFIG: dict[str, dict[str, dict[str, dict[str, str]]]] = {
    "data": {},
    "actor_rollout_ref": {"rollout": {"multi_turn": {}}},
}


def _load(loads: Loads, base: str = BASE, **broken: str) -> Target:
    source = rewritten(LOOP, SOUND | broken)
    folder = "verl/experimental/agent_loop"
    tree = {
        f"{folder}/agent_loop.py": base,
        f"{folder}/tool_parser.py": PARSER,
        f"{folder}/tool_agent_loop.py": source,
        "verl/tools/schemas.py": SCHEMAS,
        "verl/trainer/config/ppo_trainer.yaml": json.dumps(CONFIG),
    }
    return loads(FRAMEWORK, files() | tree, {"omegaconf/__init__.py": OMEGACONF})


def test_reads_back(loads: Loads) -> None:
    """Columns, settings and arguments survive the round trip."""
    target = _load(loads)
    mine = [b for b in bound(FRAMEWORK, target).values() if "ToolAgentLoop" in b.path]
    assert len(mine) == 2
    check_round_trips(target, mine)


@pytest.mark.parametrize(
    ("setting", "broken"),
    [
        ("tools", {"SEPARATOR": "[]"}),
        ("tools", {"TOOL": "1"}),
        ("tools", {"GAP": "[-1.0] * len(turn)"}),
        ("tools", {"GAP": "[]"}),
        ("limit", {"CUT": "mask[-limit:]"}),
        ("limit", {"CUT": "mask"}),
        ("limit", {"EXPERTS": "experts"}),
        ("tools", {"EXPERTS": "experts[1:]"}),
        ("tools", {"EXPERTS": "None"}),
    ],
)
@pytest.mark.parametrize("found", [False, True])
@pytest.mark.parametrize("base", [BASE, OLDER, WRAPPED], ids=["each loop", "per class", "wrapped"])
def test_tokens_mask_and_log_probs(
    loads: Loads,
    setting: str,
    broken: dict[str, str],
    found: bool,
    base: str,
) -> None:
    """A lost separator, trained tool results, their log-probs, and a mask or experts cut elsewhere, or not."""
    target = _load(loads, base, **(broken if found else {}))
    check_verdict(TOK001, bound(FRAMEWORK, target)["run", setting], setting, target, found=found)


@pytest.mark.parametrize(("mask", "wrong"), [(0, 0.0), (1, 3.0)])
def test_mask_is_compared_without_separators(mask: int, wrong: float) -> None:
    """If only the newlines after replies are missing, the mask and the log-probs are compared, too."""
    tokenizer = ChatTokenizer()
    messages = [{"role": role, "content": role} for role in ("user", REPLY, "user", REPLY)]
    prompt, reply = tokenizer.apply_chat_template(messages[:1], add_generation_prompt=True), tokenizer(REPLY + END)
    turn = tokenizer.apply_chat_template(messages[2:3], add_generation_prompt=True)
    ids, sampled = reply["input_ids"], len(reply["input_ids"])
    output = SimpleNamespace(
        prompt_ids=prompt,
        response_ids=[*ids, *turn, *ids],
        response_mask=[1] * sampled + [mask] * 3 + [0] * (len(turn) - 3) + [1] * sampled,
        response_logprobs=[-0.125, -0.25, *([0.0] * len(turn)), -0.375, -0.5],
    )
    tokens, masks, log_probs = count_wrong(tokenizer, messages, output, limit=50)
    assert tokens > 0
    assert (masks, log_probs) == (wrong, 0.0)
