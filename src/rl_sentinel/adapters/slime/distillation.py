"""slime's on-policy distillation: log-probs of the teacher from its server, and their KL penalty in the advantages."""

import asyncio
from collections.abc import Callable, Iterator
from typing import Any, Self

import torch
from torch import Tensor

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.codecs import Column
from rl_sentinel.adapters.kit.containers import EachRow, Namespace, Table
from rl_sentinel.adapters.kit.forms import Ragged
from rl_sentinel.adapters.kit.replacement import replaced_globals
from rl_sentinel.adapters.kit.requirements import no_empty_response
from rl_sentinel.adapters.kit.value_codecs import Constant, Knob
from rl_sentinel.adapters.slime.advantages import DEFAULTS
from rl_sentinel.adapters.slime.advantages import PATH as ADVANTAGES
from rl_sentinel.adapters.slime.arguments import (
    LOSS,
    LOSS_MASKS,
    MASKS,
    RESPONSE_LENGTHS,
    REWARDS,
    TOTAL_LENGTHS,
    options,
    samples,
)
from rl_sentinel.adapters.slime.samples import sample
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary, Output, Step, Unbound
from rl_sentinel.core.call import Function, Use
from rl_sentinel.core.claims import claims

MODULE = "slime.rollout.on_policy_distillation"
SCORE, PROCESS = f"{MODULE}.reward_func", f"{MODULE}.post_process_rewards"
PENALTY = f"{LOSS}.apply_opd_kl_to_advantages"

_TEACHER = claims(
    "on_policy_distillation.py, post_process_rewards, docstring: teacher log-probs of the response; "
    "loss.py, get_log_probs_and_entropy: the student's log-probs, from which they are subtracted, are at "
    "--rollout-temperature",
    output_algorithms={"logprob": "log-prob of the token"},
    knobs={"temperature": (0.7, 1.6)},
)
_PENALTY = claims(
    "loss.py, apply_opd_kl_to_advantages, docstring: reverse KL (student_logp - teacher_logp), its weighted penalty "
    "added to the advantages",
    scope="sequence",
    output_algorithms={"advantage": "outcome less k1"},
    kl="k1",
    output_pairs={"reverse kl": "old_logprob against ref_logprob"},
    knobs={"coefficient": (0.5, 1.0)},
)


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """The log-probs of the teacher, then the advantages with its penalty, in releases that have them."""
    if target.has(SCORE) and target.has(PROCESS):
        yield from bindable(target, _scored(target))
    if target.has(PENALTY):
        yield from bindable(target, _penalized())


class Teacher:
    """A double of aiohttp whose server returns the teacher's log-probs of one sequence, in SGLang's format.

    ``logits`` are for the response tokens; prompt tokens get an arbitrary log-prob, except the first, which gets none.
    """

    def __init__(self, logits: Tensor) -> None:
        """Store the logits, ``[T, V]``."""
        self.logits = logits
        self.payload: dict[str, Any] = {}

    def ClientSession(self, **_options: object) -> "Teacher":  # noqa: N802 - the name in aiohttp
        """The session."""
        return self

    def post(self, _url: str, *, json: dict[str, Any], **_options: object) -> "Teacher":
        """The reply to a request."""
        self.payload = json
        return self

    async def __aenter__(self) -> Self:
        """The session, or the reply."""
        return self

    async def __aexit__(self, *_error: object) -> None:
        """Do nothing: there is nothing to close."""

    def raise_for_status(self) -> None:
        """Do nothing: the request succeeded."""

    async def json(self) -> dict[str, Any]:
        """The log-probs of all tokens; SGLang replaces temperature 0, which means greedy sampling, by 1."""
        ids, params = self.payload["input_ids"], self.payload["sampling_params"]
        logprobs = (self.logits / (params.get("temperature", 1.0) or 1.0)).log_softmax(-1)
        before = len(ids) - len(logprobs)
        scored = [(-9.0, token, None) for token in ids[:before]]
        scored += [(float(row[token]), token, None) for row, token in zip(logprobs, ids[before:], strict=True)]
        return {"text": "", "meta_info": {"input_token_logprobs": [(None, ids[0], None), *scored[1:]]}}


def teacher_logprobs(
    score: Callable[..., Any],
    process: Callable[..., Any],
    args: Any,  # noqa: ANN401 - a namespace
    rows: list[Any],
    logits: list[Tensor],
) -> list[Tensor]:
    """The teacher's log-probs that each sample gets from its server."""
    for row, teacher in zip(rows, logits, strict=True):
        with replaced_globals(score.__globals__, aiohttp=Teacher(teacher)):
            row.reward = asyncio.run(score(args, row))
    process(args, rows)
    return [torch.as_tensor(row.teacher_log_probs) for row in rows]


def _scored(target: Target) -> Boundary:
    args = Namespace(rollout_temperature=Knob("temperature"), reward_key=Constant(None), rm_url=Constant("teacher"))
    step = Step(
        call=teacher_logprobs,
        name="teacher",
        arguments={
            "score": Constant(Function(SCORE)),
            "process": Constant(Function(PROCESS)),
            "args": args,
            "rows": EachRow(sample(target, "reward")),
            "logits": Column("logits", Ragged()),
        },
        produced_by={
            "rows": "slime/rollout/sglang_rollout.py, generate_and_rm: a finished sample is sent to the reward "
            "function, which queries the teacher's server"
        },
    )
    return Boundary(
        path=f"{SCORE} -> {PROCESS}",
        stage="batch",
        steps=(step,),
        reads=frozenset({"token", "length", "logits", "prompt_length"}),
        unused=frozenset({"prompt_length"}),
        outputs={"logprob": Output("B T", "nats", "logprob", at=Use("teacher"), form=Ragged())},
        settings={"default": {"temperature": 1.0}, "other temperature": {"temperature": 0.5}},
        claims=_TEACHER,
        reach=f"--custom-rm-path {SCORE}, --custom-reward-post-process-path {PROCESS}, --rollout-temperature",
        requires=(no_empty_response,),
    )


def _penalized() -> Boundary:
    fixed = {**DEFAULTS, "use_opd": True, "opd_type": "sglang", "advantage_estimator": "grpo", "kl_coef": 0.0}
    data = Table(
        {
            "log_probs": samples("old_logprob"),
            "teacher_log_probs": samples("ref_logprob"),
            "rewards": REWARDS,
            "loss_masks": LOSS_MASKS,
            "total_lengths": TOTAL_LENGTHS,
            "response_lengths": RESPONSE_LENGTHS,
        }
    )
    args = options(**fixed)
    step = Step(
        call=ADVANTAGES,
        arguments={"args": Namespace(**args.parts, opd_kl_coef=Knob("coefficient")), "rollout_data": data},
        produced_by={
            "rollout_data": f"{MASKS}; log_probs and teacher_log_probs: actor.py, train_actor, or the samples' "
            "teacher_log_probs in rollout.py, _convert_samples_to_train_data"
        },
    )
    result = Use("rollout_data")
    return Boundary(
        path=f"{ADVANTAGES} -> {PENALTY}",
        stage="advantage",
        steps=(step,),
        unused=frozenset({"excluded"}),
        outputs={
            "advantage": Output("B T", "reward", "advantage", at=result["advantages"], form=Ragged()),
            "reverse kl": Output("B T", "nats", "kl.k1", at=result["opd_reverse_kl"], form=Ragged()),
        },
        settings={"grpo, distilled": {"coefficient": 1.0}},
        claims=_PENALTY,
        reach="--use-opd, --opd-kl-coef 1.0, --advantage-estimator grpo",
    )
