"""Messages of verl's interactions, and the cut of long tool results, on a specimen in words of our own."""

import json

import pytest

from adapters.checks import Loads, bound, check_verdict, rewritten
from adapters.kit.round_trip import check_round_trips
from adapters.verl.omegaconf_specimen import OMEGACONF
from adapters.verl_specimen import files
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.verl import FRAMEWORK
from rl_sentinel.laws.conversation_tokens_differ import LAW as TOK001

BASE = """
    class AgentLoopBase:
        def __init__(self, trainer_config, server_manager, tokenizer, **about):
            self.server, self.tokenizer = server_manager, tokenizer
            self.interaction_config_file, self.max_tool_response_length = None, 100
            self.tool_response_truncate_side = "middle"
"""

MADE = """
    from types import SimpleNamespace

    class {name}(SimpleNamespace):
        pass
"""

LOOP = """
    import json
    from types import SimpleNamespace

    from verl.experimental.agent_loop.agent_loop import AgentLoopBase

    class ToolAgentLoop(AgentLoopBase):
        def cut(self, text):
            size = self.max_tool_response_length
            if len(text) <= size:
                return text
            return "..." + text[-size:] if self.tool_response_truncate_side == SIDE else text[:size] + "..."

        async def run(self, sampling_params, raw_prompt, extra_info, **about):
            messages = list(raw_prompt)
            while True:
                prompt = self.tokenizer.apply_chat_template(messages, add_generation_prompt=True)
                output = await self.server.generate(prompt_ids=prompt)
                output.log_probs
                _, calls = await self.tool_parser.extract_tool_calls(output.token_ids)
                reply = self.tokenizer.decode(output.token_ids, skip_special_tokens=True)
                messages.append({"role": "assistant", "content": reply})
                if not calls:
                    break
                results = []
                for call in calls:
                    result, _, _ = await self.tools[call.name].execute("", json.loads(call.arguments))
                    results.append({"role": "tool", "content": self.cut(result.text)})
                    EACH
                messages.extend(results)
            if self.interaction_config_file:
                interaction = self.interaction_map[extra_info["interaction_kwargs"]["name"]]
                await interaction.start_interaction("request")
                await interaction.generate_response("request", messages)
"""
SOUND = {"SIDE": '"left"', "EACH": "pass"}
CONFIG: dict[str, dict[str, dict[str, dict[str, str]]]] = {
    "data": {},
    "actor_rollout_ref": {"rollout": {"multi_turn": {}}},
}


def _load(loads: Loads, **broken: str) -> Target:
    source = rewritten(LOOP, SOUND | broken)
    folder = "verl/experimental/agent_loop"
    tree = {
        f"{folder}/agent_loop.py": BASE,
        f"{folder}/tool_parser.py": MADE.format(name="FunctionCall"),
        f"{folder}/tool_agent_loop.py": source,
        "verl/tools/schemas.py": MADE.format(name="ToolResponse"),
        "verl/trainer/config/ppo_trainer.yaml": json.dumps(CONFIG),
    }
    return loads(FRAMEWORK, files() | tree, {"omegaconf/__init__.py": OMEGACONF})


def test_reads_back(loads: Loads) -> None:
    """Columns, settings and arguments survive the round trip."""
    target = _load(loads)
    names = {"an interaction", "an interaction, several calls", "results cut at the left", "results cut at the right"}
    mine = [b for b in bound(FRAMEWORK, target).values() if names & set(b.settings)]
    assert len(mine) == len(names)
    check_round_trips(target, mine)


@pytest.mark.parametrize(
    ("setting", "broken"),
    [
        ("an interaction", {"EACH": "messages.extend(results)"}),
        ("an interaction, several calls", {"EACH": "messages.extend(results[:-1])"}),
        ("an interaction, several calls", {"EACH": 'results[:] = [{"role": "tool", "content": result.text}]'}),
        ("results cut at the left", {"SIDE": '"right"'}),
        ("results cut at the right", {"SIDE": '"right"'}),
    ],
)
@pytest.mark.parametrize("found", [False, True])
def test_messages(loads: Loads, setting: str, broken: dict[str, str], found: bool) -> None:
    """Results that an interaction gets twice or not at all, and a cut at the other side, or not."""
    target = _load(loads, **(broken if found else {}))
    check_verdict(TOK001, bound(FRAMEWORK, target)["run", setting], setting, target, found=found)
