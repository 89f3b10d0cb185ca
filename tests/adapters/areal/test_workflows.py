"""AReaL's rollout workflows, on a specimen of their call shapes in words of our own."""

import pytest

from adapters.areal_specimen import RESPONSE
from adapters.checks import Loads, answering, by_setting, check_verdict, rewritten
from adapters.kit.round_trip import check_round_trip
from rl_sentinel.adapters.areal import FRAMEWORK, workflows
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.laws.tokens_or_samples_lost import LAW as PLC004

CONFIG = """
    class GenerationHyperparameters:
        def __init__(self, n_samples):
            self.n_samples = n_samples
"""

EPISODE = """
    from types import SimpleNamespace

    import torch

    def apply_chat_template(tokenizer, messages):
        raise RuntimeError("there is no tokenizer")

    class AsyncRewardWrapper:
        def __init__(self, function):
            raise RuntimeError("there are no processes")

    def packed(seq, masks, logprobs, versions, reward):
        row = {"input_ids": seq, "loss_mask": masks, "logprobs": logprobs, "versions": versions, "rewards": reward}
        return {name: torch.tensor([value]) for name, value in {**row, "attention_mask": [True] * len(seq)}.items()}

    class RLVRWorkflow:
        def __init__(self, reward_fn, gconfig, tokenizer, enable_thinking=False):
            self.reward, self.tokenizer = AsyncRewardWrapper(reward_fn), tokenizer

        async def arun_episode(self, engine, data):
            prompt = apply_chat_template(self.tokenizer, data["messages"])
            own = await engine.agenerate(SimpleNamespace(input_ids=prompt))
            text = self.tokenizer.decode(own.output_tokens)
            reward = await self.reward("", text, prompt, own.output_tokens, **data)
            before, after = len(prompt), len(own.output_tokens)
            masks = [PROMPT] * before + [1] * after
            logprobs = [0.0] * before + own.output_logprobs
            versions = [-1] * before + own.output_versions
            return packed(prompt + own.output_tokens, masks, logprobs, versions, reward)

    class MultiTurnWorkflow:
        def __init__(self, reward_fn, gconfig, tokenizer, max_turns, turn_discount):
            self.reward, self.tokenizer = AsyncRewardWrapper(reward_fn), tokenizer
            self.most, self.discount = max_turns, turn_discount
            opening = [{"role": "assistant"}]
            again = apply_chat_template(tokenizer, opening + [{"role": "user"}])
            self.again = again[len(apply_chat_template(tokenizer, opening)):]

        async def arun_episode(self, engine, data):
            ids = apply_chat_template(self.tokenizer, data["messages"])
            masks, logprobs, versions = [0] * len(ids), [0.0] * len(ids), [-1] * len(ids)
            reward, turn = 0.0, 0
            while reward == 0.0 and turn < self.most:
                own = await engine.agenerate(SimpleNamespace(input_ids=ids))
                text = self.tokenizer.decode(own.output_tokens)
                reward = await self.reward("", text, ids, own.output_tokens, **data)
                ids = ids + own.output_tokens
                masks += [1] * len(own.output_tokens)
                logprobs += own.output_logprobs
                versions += own.output_versions
                turn += 1
                if reward == 0.0 and turn < self.most:
                    more = ([] if STOPPED else [self.tokenizer.eos_token_id]) + self.again
                    ids, masks = ids + more, masks + [FEEDBACK] * len(more)
                    logprobs, versions = logprobs + [0.0] * len(more), versions + [-1] * len(more)
            return packed(ids, masks, logprobs, versions, reward * self.discount ** (POWER))
"""

SOUND = {
    "PROMPT": "0",
    "FEEDBACK": "0",
    "STOPPED": "own.output_tokens[-1] == self.tokenizer.eos_token_id",
    "POWER": "turn - 1",
}


def _bound(loads: Loads, **broken: str) -> tuple[Target, dict[str, Boundary]]:
    source = rewritten(EPISODE, SOUND | broken)
    tree = {
        "areal/__init__.py": "",
        "areal/api/cli_args.py": CONFIG,
        "areal/api/io_struct.py": RESPONSE,
        "areal/workflow/rlvr.py": source,
        "areal/workflow/multi_turn.py": source,
    }
    target = loads(FRAMEWORK, tree)
    return target, by_setting(workflows.boundaries(target))


def test_sound(loads: Loads) -> None:
    target, every = _bound(loads)
    assert sorted(every) == ["cut off", "end of sequence", "one turn"]
    assert answering({("episode", setting): one for setting, one in every.items()}, target) == []
    for setting, boundary in every.items():
        check_verdict(PLC004, boundary, setting, target, found=False)


def test_every_call_reads_back(loads: Loads) -> None:
    target, every = _bound(loads)
    for setting in ("one turn", "cut off"):
        check_round_trip(target, every[setting])


@pytest.mark.parametrize(
    ("broken", "setting"),
    [
        ({"PROMPT": "1"}, "one turn"),
        ({"FEEDBACK": "1"}, "cut off"),
        ({"STOPPED": "True"}, "cut off"),
        ({"STOPPED": "False"}, "end of sequence"),
        ({"POWER": "2 * turn - 2"}, "cut off"),
        ({"POWER": "turn"}, "end of sequence"),
    ],
)
def test_broken_row(loads: Loads, broken: dict[str, str], setting: str) -> None:
    """Trained tokens that nobody sampled, a stop token that is lost or doubled, and a discount too many."""
    target, every = _bound(loads, **broken)
    check_verdict(PLC004, every[setting], setting, target, found=True)
