"""Images that tools return to verl's agent loop, on a specimen in words of our own."""

import json

import pytest

from adapters.checks import Loads, bound, check_verdict, rewritten
from adapters.kit.round_trip import check_calls
from adapters.verl.omegaconf_specimen import OMEGACONF
from adapters.verl.test_tool_messages import BASE, CONFIG, MADE
from adapters.verl_specimen import files
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.verl import FRAMEWORK
from rl_sentinel.laws.columns_out_of_step import LAW as DAT001

LOOP = """
    import json
    from types import SimpleNamespace

    from verl.experimental.agent_loop.agent_loop import AgentLoopBase

    class ToolAgentLoop(AgentLoopBase):
        def rendered(self, messages):
            texts = self.processor or self.tokenizer
            text = texts.apply_chat_template(messages, add_generation_prompt=True, tokenize=False, system="")
            return self.processor(text=[text], images=None)["input_ids"][0].tolist()

        async def run(self, sampling_params, raw_prompt, **about):
            messages, images, response = list(raw_prompt), [], []
            limit = self.config.actor_rollout_ref.rollout.response_length
            prompt = self.rendered(messages)
            while len(response) < limit:
                output = await self.server.generate(prompt_ids=prompt + response)
                output.log_probs
                response += output.token_ids
                _, calls = await self.tool_parser.extract_tool_calls(output.token_ids)
                if not calls:
                    break
                results, new_images_this_turn = [], []
                for call in calls:
                    result, _, _ = await self.tools[call.name].execute("", json.loads(call.arguments))
                    content = [{"type": "image"}, {"type": "text", "text": result.text}]
                    results.append({"role": "tool", "content": content})
                    new_images_this_turn += result.image
                ids = self.rendered(results)
                EARLY
                if len(response) + len(ids) >= limit:
                    break
                LATE
                response += ids
            return SimpleNamespace(
                prompt_ids=prompt, response_ids=response[:limit], multi_modal_data={"image": images}
            )
"""
SOUND = {"EARLY": "pass", "LATE": "images += new_images_this_turn"}


def _load(loads: Loads, **words: str) -> Target:
    source = rewritten(LOOP, SOUND | words)
    folder = "verl/experimental/agent_loop"
    tree = {
        f"{folder}/agent_loop.py": BASE.replace(
            "self.server,", "self.config = trainer_config.config\n" + " " * 12 + "self.server,"
        ),
        f"{folder}/tool_parser.py": MADE.format(name="FunctionCall"),
        f"{folder}/tool_agent_loop.py": source,
        "verl/tools/schemas.py": MADE.format(name="ToolResponse"),
        "verl/trainer/config/ppo_trainer.yaml": json.dumps(CONFIG),
    }
    return loads(FRAMEWORK, files() | tree, {"omegaconf/__init__.py": OMEGACONF})


def test_reads_back(loads: Loads) -> None:
    """Both settings answer, and their calls are read back."""
    target = _load(loads)
    mine = {key: b for key, b in bound(FRAMEWORK, target).items() if key[1] in {"images", "images, limit"}}
    assert len(mine) == 2
    check_calls(target, mine.values())


@pytest.mark.parametrize(
    ("setting", "words", "found"),
    [
        ("images", {}, False),
        ("images, limit", {}, False),
        ("images", {"EARLY": SOUND["LATE"], "LATE": "pass"}, False),
        ("images, limit", {"EARLY": SOUND["LATE"], "LATE": "pass"}, True),
        ("images", {"LATE": "images += new_images_this_turn[:1]"}, True),
        ("images", {"LATE": "images += reversed(new_images_this_turn)"}, True),
    ],
)
def test_images_of_tokens(loads: Loads, setting: str, words: dict[str, str], *, found: bool) -> None:
    """Images of results that are cut off, of the first result alone, or in another order, or not."""
    target = _load(loads, **words)
    check_verdict(DAT001, bound(FRAMEWORK, target)["run", setting], setting, target, found=found)
