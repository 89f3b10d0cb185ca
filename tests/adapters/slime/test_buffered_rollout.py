"""slime's rollout from a buffer server, on a specimen of its call shapes in words of our own."""

import pytest

from adapters.checks import Loads, answering, check_verdict, judged_at, rewritten, the_only
from adapters.kit.round_trip import check_round_trip
from rl_sentinel.adapters.slime import FRAMEWORK
from rl_sentinel.adapters.slime.buffered_rollout import boundaries
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.core.law import Law
from rl_sentinel.laws.columns_out_of_step import LAW as DAT001
from rl_sentinel.laws.conversation_tokens_differ import LAW as TOK001
from rl_sentinel.laws.sample_lost_or_repeated import LAW as DAT002
from rl_sentinel.laws.tokens_or_samples_lost import LAW as PLC004

TYPES = """
    from dataclasses import dataclass, field
    from enum import Enum

    @dataclass
    class Sample:
        class Status(Enum):
            COMPLETED = "completed"
            TRUNCATED = "truncated"

        index: str
        tokens: list
        response_length: int
        reward: float
        loss_mask: list
        status: Status
        metadata: dict = field(default_factory=dict)
"""

EXAMPLE = """
    import time

    from slime.utils.types import Sample

    START_ROLLOUT, AutoTokenizer = True, None

    async def get_rollout_data(api_base_url):
        raise NotImplementedError

    def masked(tokenizer, messages):
        parts = [(tokenizer(text)["input_ids"], trains) for text, trains in tokenizer.parts(messages)]
        return [t for ids, _ in parts for t in ids], [int(trains) for ids, trains in parts for _ in ids]

    async def generate_rollout_async(args, rollout_id, data_buffer):
        time.sleep(5)
        tokenizer = AutoTokenizer.from_pretrained(args.hf_checkpoint)
        records, _ = await get_rollout_data(api_base_url="server")
        samples = []
        for record in records:
            tokens, mask = masked(tokenizer, record["messages"])
            length = len(mask) - mask.index(1) if FROM_FIRST else sum(mask)
            cut = STATE and record["extra_info"]["finish_reason"] == "length"
            samples.append(
                Sample(
                    index=record["instance_id"],
                    tokens=tokens,
                    response_length=length,
                    reward=REWARD,
                    loss_mask=mask[-length:],
                    status=Sample.Status.TRUNCATED if cut else Sample.Status.COMPLETED,
                    metadata={**record["extra_info"]},
                )
            )
        n = args.n_samples_per_prompt
        samples = SELECTED
        data_buffer.add_samples([samples[start : start + n] for start in range(0, len(samples), n)])
        return data_buffer.get_samples(args.rollout_batch_size)
"""

SOUND = {"FROM_FIRST": "True", "STATE": "True", "REWARD": 'record["reward"]', "SELECTED": "samples"}


def _bound(loads: Loads, **broken: str) -> tuple[Target, Boundary]:
    source = rewritten(EXAMPLE, SOUND | broken)
    tree = {
        "slime/__init__.py": "",
        "slime/utils/types.py": TYPES,
        "slime_plugins/rollout_buffer/rollout_buffer_example.py": source,
    }
    target = loads(FRAMEWORK, tree)
    return target, the_only(boundaries(target))


def test_sound(loads: Loads) -> None:
    target, boundary = _bound(loads)
    assert answering({("buffer", "records of a buffer"): boundary}, target) == []
    for law in (PLC004, TOK001, DAT001, DAT002):
        judgement = judged_at(law, boundary, "records of a buffer", target)
        assert (law.code, judgement.tried > 0, judgement.found) == (law.code, True, None)
    check_round_trip(target, boundary)


@pytest.mark.parametrize(
    ("broken", "law"),
    [
        ({"FROM_FIRST": "False"}, TOK001),
        ({"STATE": "False"}, DAT001),
        ({"REWARD": "1.0"}, PLC004),
        ({"SELECTED": "samples[:n] + samples[:-n]"}, DAT002),
    ],
)
def test_broken(loads: Loads, broken: dict[str, str], law: Law) -> None:
    """A mask cut at the number of trained tokens, a lost state, a constant reward, and a prompt that is taken twice."""
    target, boundary = _bound(loads, **broken)
    check_verdict(law, boundary, "records of a buffer", target, found=True)
