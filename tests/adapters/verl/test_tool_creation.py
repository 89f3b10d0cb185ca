"""The arguments with which verl's agent loop creates the tools of a row, on a specimen in words of our own."""

import json

import pytest

from adapters.checks import Loads, check_verdict, rewritten, the_only
from adapters.kit.round_trip import check_calls
from adapters.verl.omegaconf_specimen import OMEGACONF
from adapters.verl.test_tool_messages import BASE, CONFIG, MADE
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.verl import FRAMEWORK, tool_creation
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.laws.columns_out_of_step import LAW as DAT001

LOOP = """
    import json
    from types import SimpleNamespace

    from verl.experimental.agent_loop.agent_loop import AgentLoopBase

    class ToolAgentLoop(AgentLoopBase):
        async def run(self, sampling_params, **row):
            messages = list(row["raw_prompt"])
            while True:
                prompt = self.tokenizer.apply_chat_template(messages, add_generation_prompt=True)
                sampled = await self.server.generate(prompt_ids=prompt)
                _, calls = await self.tool_parser.extract_tool_calls(TOKENS)
                if not calls:
                    break
                text = self.tokenizer.decode(TOKENS, skip_special_tokens=True)
                messages.append({"role": "assistant", "content": text})
                for call in calls:
                    tool = self.tools[call.name]
                    own = row["tools_kwargs"].get(call.name, {}).get("create_kwargs", {})
                    instance = CREATED
                    result = await tool.execute(instance, json.loads(call.arguments))
                    messages.append({"role": "tool", "content": TEXT})
"""

DATA = """
    class RLHFDataset:
        def __getitem__(self, item):
            return {"tools_kwargs": self.rows[item]["extra_info"].get("tools_kwargs", {})}
"""

CREATED = "await tool.create(create_kwargs=own)"
LATER = {"TOKENS": "sampled.token_ids", "TEXT": "result[0].text"}
EARLY = {"TOKENS": "sampled", "TEXT": "result[0]"}


WRAPPED = BASE.replace(
    "tokenizer, **about):",
    "tokenizer, dataset_config, **about):\n            self.options = dataset_config.config.get('data')",
)


def _bound(loads: Loads, created: str = CREATED, *, early: bool = False, base: str = BASE) -> tuple[Target, Boundary]:
    folder = "verl/experimental/agent_loop"
    tree = {
        f"{folder}/agent_loop.py": base,
        f"{folder}/tool_parser.py": MADE.format(name="FunctionCall"),
        f"{folder}/tool_agent_loop.py": rewritten(LOOP, (EARLY if early else LATER) | {"CREATED": created}),
        "verl/utils/dataset/rl_dataset.py": DATA,
        "verl/trainer/config/ppo_trainer.yaml": json.dumps(CONFIG),
        "verl/trainer/__init__.py": "",
    }
    if not early:
        tree["verl/tools/schemas.py"] = MADE.format(name="ToolResponse")
    target = loads(FRAMEWORK, tree, {"omegaconf/__init__.py": OMEGACONF})
    return target, the_only(tool_creation.boundaries(target))


def test_answers_and_reads_back(loads: Loads) -> None:
    """The loop plays the conversation of each row."""
    target, boundary = _bound(loads)
    check_calls(target, [boundary])


@pytest.mark.parametrize("early", [False, True])
@pytest.mark.parametrize(
    ("created", "found"),
    [
        (CREATED, False),
        ("await tool.create(**own)", False),
        ("await tool.create()", True),
        ('await tool.create(create_kwargs=row["tools_kwargs"])', True),
        ('"instance" if True else await tool.create()', True),
    ],
)
def test_tools_of_a_row(loads: Loads, created: str, found: bool, early: bool) -> None:
    """Tools without arguments, with the arguments of all tools, and tools that are not created."""
    target, boundary = _bound(loads, created, early=early)
    check_verdict(DAT001, boundary, "arguments of the tools", target, found=found)


def test_loops_that_get_the_data_section_in_a_wrapper(loads: Loads) -> None:
    """A loop that takes its section out of a wrapper gets one."""
    target, boundary = _bound(loads, base=WRAPPED)
    check_verdict(DAT001, boundary, "arguments of the tools", target, found=False)


def test_loops_that_get_no_row(loads: Loads) -> None:
    """A release whose loops get messages instead of rows has no boundary here."""
    tree = {"verl/utils/dataset/rl_dataset.py": DATA, "verl/trainer/__init__.py": ""}
    assert list(tool_creation.boundaries(loads(FRAMEWORK, tree, {}))) == []
