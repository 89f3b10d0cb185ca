"""SkyRL's log-probs on context-parallel ranks, on a specimen of its call shapes in words of our own."""

import pytest

from adapters.checks import Loads, by_setting, check_verdict
from adapters.kit.round_trip import check_calls
from rl_sentinel.adapters.skyrl import FRAMEWORK
from rl_sentinel.adapters.skyrl.context_parallel import boundaries
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.laws.differs_from_reference import LAW as REF001

PACK = """
    import torch
    from megatron.core import parallel_state as mpu
    from megatron.core.packed_seq_params import PackedSeqParams

    def chunks(length, size):
        half = length // (2 * size)
        starts = [(rank * half, length - rank * half - half) for rank in range(size)]
        return [[*range(first, first + half), *range(last, last + half)] for first, last in starts]

    def preprocess_packed_seqs(ids, mask):
        size, rank = mpu.get_context_parallel_world_size(), mpu.get_context_parallel_rank()
        parts, ends = [], [0]
        for row, real in zip(ids, mask):
            own = row[real]
            own = torch.nn.functional.pad(own, (0, -len(own) % (2 * size)))
            parts.append(own[chunks(len(own), size)[PART]])
            ends.append(ends[-1] + len(own))
        return torch.cat(parts).unsqueeze(0), PackedSeqParams(
            cu_seqlens_q_padded=torch.tensor(ends), total_tokens=TOTAL
        )
"""

TARGETS = """
    import torch

    def _build_packed_targets(sequences, mask, params):
        ends, rows = params.cu_seqlens_q_padded.tolist(), []
        for row, real, start, end in zip(sequences, mask, ends, ends[1:]):
            rows.append(torch.nn.functional.pad(row[real], (0, end - start - int(real.sum()))))
        return torch.cat(rows).unsqueeze(0)
"""

LOG_PROBS = """
    import torch
    from skyrl.backends.skyrl_train.distributed.megatron.megatron_utils import chunks

    class Whole(torch.autograd.Function):
        @staticmethod
        def forward(ctx, part, places, group):
            size, ctx.own = torch.distributed.get_world_size(group), places[torch.distributed.get_rank(group)]
            parts = [torch.empty_like(part) for _ in range(size)]
            torch.distributed.all_gather(parts, part, group=group)
            whole = part.new_zeros(size * len(part))
            for where, values in zip(places, parts):
                whole[where] = values
            return whole

        @staticmethod
        def backward(ctx, slope):
            return SCALED, None, None

    def from_parallel_logits_to_logprobs_packed_sequences(
        logits, targets, ends, width, vocab_start_index, vocab_end_index, group, cp_group, attention_mask
    ):
        size, rank = torch.distributed.get_world_size(cp_group), torch.distributed.get_rank(cp_group)
        ends = ends.tolist()
        places = [
            torch.tensor([start + one for start, end in zip(ends, ends[1:]) for one in chunks(end - start, size)[r]])
            for r in range(size)
        ]
        following = targets[0].roll(-1)[places[rank]]
        own = logits[0].log_softmax(-1).gather(-1, following.unsqueeze(-1)).squeeze(-1)
        whole, found = Whole.apply(own, places, cp_group), logits.new_zeros(len(ends) - 1, width - 1)
        rows = []
        for real, start in zip(attention_mask, ends):
            count = int(real.sum()) - 1
            rows.append(torch.nn.functional.pad(whole[start : start + count], (width - 1 - count, 0)))
        return torch.stack(rows)
"""

SOUND = {"PART": "rank", "SCALED": "slope[ctx.own]", "TOTAL": "ends[-1]"}

RECURRENT = "packed, recurrent layers"


def _bound(loads: Loads, **broken: str) -> tuple[Target, dict[str, Boundary]]:
    place = "skyrl/backends/skyrl_train"
    files = {
        "skyrl/backends/__init__.py": "raise RuntimeError('an engine was started')",
        f"{place}/distributed/megatron/megatron_utils.py": PACK,
        f"{place}/distributed/megatron/model_utils.py": LOG_PROBS,
        f"{place}/workers/megatron/megatron_model_wrapper.py": TARGETS,
    }
    for word, code in {
        **SOUND,
        **{f" {word}" if word == "SCALE" else word: code for word, code in broken.items()},
    }.items():
        files = {path: source.replace(word, code) for path, source in files.items()}
    target = loads(FRAMEWORK, files)
    return target, by_setting(boundaries(target))


def test_answers(loads: Loads) -> None:
    target, bound = _bound(loads)
    assert list(bound) == ["packed", "packed, two ranks", RECURRENT]
    check_calls(target, bound.values())


@pytest.mark.parametrize("setting", ["packed", "packed, two ranks"])
@pytest.mark.parametrize(
    ("broken", "found"),
    [
        ({}, False),
        ({"PART": "(rank + 1) % size"}, True),
        ({"SCALED": "slope[ctx.own] / len(slope) * len(ctx.own)"}, True),
    ],
)
def test_log_probs(loads: Loads, setting: str, broken: dict[str, str], found: bool) -> None:
    """Chunks of another rank, and a gradient that is divided by the number of ranks: wrong on several ranks alone."""
    target, bound = _bound(loads, **broken)
    check_verdict(REF001, bound[setting], setting, target, found=found and setting != "packed")


@pytest.mark.parametrize(("total", "found"), [("ends[-1]", False), ("None", True)])
def test_recurrent_layers(loads: Loads, total: str, found: bool) -> None:
    """Without the number of all tokens, the state of one sequence passes to the next one."""
    target, bound = _bound(loads, TOTAL=total)
    check_verdict(REF001, bound[RECURRENT], RECURRENT, target, found=found)
