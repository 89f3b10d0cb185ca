"""slime's on-policy distillation: teacher log-probs from a server, and the KL penalty on the advantages."""

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.codecs import Column
from rl_sentinel.adapters.kit.containers import EachRow, Namespace, Table
from rl_sentinel.adapters.kit.forms import Ragged
from rl_sentinel.adapters.kit.http_fake import HttpFake
from rl_sentinel.adapters.kit.replacement import replaced_globals
from rl_sentinel.adapters.kit.requirements import no_empty_response
from rl_sentinel.adapters.kit.scripted_sampling import WRONG, fit_to_length
from rl_sentinel.adapters.kit.value_codecs import Constant, Knob, functions
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
from rl_sentinel.adapters.slime.rollout_fakes import Words
from rl_sentinel.adapters.slime.samples import sample
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary, Output, Unbound, one_call
from rl_sentinel.core.call import Function, Use
from rl_sentinel.core.claims import claims

#: Modules of the teacher's reward function, newest first; until February 2026 it was an example in checkouts.
MODULES = ("slime.rollout.on_policy_distillation", "examples.on_policy_distillation.on_policy_distillation")
PENALTY = f"{LOSS}.apply_opd_kl_to_advantages"

#: The first id of a merged pair of tokens.
_PAIR = 1000

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
    """Boundaries of the teacher's log-probs, the tokens that the teacher scores, and advantages with the penalty."""
    module = next((name for name in MODULES if target.has(f"{name}.post_process_rewards")), "")
    if module and target.has(f"{module}.reward_func"):
        score, process = f"{module}.reward_func", f"{module}.post_process_rewards"
        yield from bindable(target, _scored(target, score, process), _asked(target, score))
    if target.has(PENALTY):
        yield from bindable(target, _penalized())


class Teacher(HttpFake):
    """A fake aiohttp. Its server returns the teacher's log-probs of one sequence, in SGLang's format.

    ``logits`` are for the response tokens. Prompt tokens get an arbitrary log-prob, except the first token, which gets
    no log-prob. The server tokenizes a text as :func:`merged` does.
    """

    def __init__(self, logits: Tensor) -> None:
        """Store the logits ``[T, V]``."""
        super().__init__()
        self.logits = logits

    @property
    def ids(self) -> list[int]:
        """The tokens that the server scores."""
        return list(self.asked["input_ids"]) if "input_ids" in self.asked else merged(self.asked["text"])

    async def json(self) -> dict[str, Any]:
        """The log-probs of all tokens. Like SGLang, replace temperature 0 (greedy sampling) with 1."""
        ids, params = self.ids, self.asked["sampling_params"]
        logprobs = (self.logits / (params.get("temperature", 1.0) or 1.0)).log_softmax(-1)
        before = max(len(ids) - len(logprobs), 0)
        scored = [(-9.0, token, None) for token in ids[:before]]
        pairs = zip(logprobs, ids[before:], strict=False)  # a merged text has fewer tokens
        scored += [(float(row[token % len(row)]), token, None) for row, token in pairs]
        return {"text": "", "meta_info": {"input_token_logprobs": [(None, ids[0], None), *scored[1:]]}}


def merged(text: str) -> list[int]:
    """Tokenize a text of token ids such that each pair of ids becomes one token; an odd last id remains.

    Sampled tokens often differ from the tokens of the sampled text.
    """
    words = Words().encode(text)
    pairs = zip(words[::2], words[1::2], strict=False)
    return [_PAIR + first * _PAIR + second for first, second in pairs] + words[len(words) & ~1 :]


def teacher_logprobs(
    score: Callable[..., Any],
    process: Callable[..., Any],
    args: Any,  # noqa: ANN401 - a namespace
    rows: list[Any],
    logits: list[Tensor],
) -> list[Tensor]:
    """Query the teacher's server for each sample, and return the teacher's log-probs that the sample gets."""
    for row, teacher in zip(rows, logits, strict=True):
        row.reward = ask(score, args, row, Teacher(teacher))
    process(args, rows)
    return [fit_to_length(list(row.teacher_log_probs), row.response_length, float("inf")) for row in rows]


def scored_tokens(score: Callable[..., Any], args: Any, rows: list[Any]) -> list[Tensor]:  # noqa: ANN401 - a namespace
    """Query the teacher's server for each sample, and return the tokens of its response that the server scores."""
    tokens = []
    for row in rows:
        teacher = Teacher(torch.zeros(row.response_length, 1))
        ask(score, args, row, teacher)
        tokens.append(fit_to_length(teacher.ids[-row.response_length :], row.response_length, WRONG))
    return tokens


def ask(score: Callable[..., Any], args: Any, row: Any, teacher: Teacher) -> Any:  # noqa: ANN401 - a sample
    """Query the teacher for a sample whose prompt and response texts are its token ids."""
    words, start = Words(), len(row.tokens) - row.response_length
    row.prompt, row.response = words.decode(row.tokens[:start]), words.decode(row.tokens[start:])
    with replaced_globals(score.__globals__, aiohttp=teacher):
        return asyncio.run(score(args, row))


#: Arguments of a run that queries a teacher, and the lines that query it.
_ARGS = Namespace(
    rollout_temperature=Knob("temperature", default=1.0), reward_key=Constant(None), rm_url=Constant("teacher")
)
_PRODUCED = {
    "rows": "slime/rollout/sglang_rollout.py, generate_and_rm: a finished sample is sent to the reward function, which "
    "queries the teacher's server"
}


def _asked(target: Target, score: str) -> Boundary:
    return one_call(
        path=score,
        stage="batch",
        call=scored_tokens,
        name="tokens",
        arguments={"score": Constant(Function(score)), "args": _ARGS, "rows": EachRow(sample(target, "reward"))},
        produced_by=_PRODUCED,
        reads=frozenset({"token", "length", "prompt_length"}),
        unused=frozenset({"prompt_length"}),
        outputs={"token": Output("B T", "", "token", at=Use("tokens"), form=Ragged())},
        settings={"sampled tokens": {}},
        claims=claims(
            "README.md of the example: the teacher provides token-level log-probs of the student's own rollouts",
            conserves=True,
        ),
        reach=f"--custom-rm-path {score}",
        requires=(no_empty_response,),
    )


def _scored(target: Target, score: str, process: str) -> Boundary:
    return one_call(
        path=f"{score} -> {process}",
        stage="batch",
        call=teacher_logprobs,
        name="teacher",
        arguments={
            **functions(score=score, process=process),
            "args": _ARGS,
            "rows": EachRow(sample(target, "reward")),
            "logits": Column("logits", Ragged()),
        },
        produced_by=_PRODUCED,
        reads=frozenset({"token", "length", "logits", "prompt_length"}),
        unused=frozenset({"prompt_length"}),
        outputs={"logprob": Output("B T", "nats", "logprob", at=Use("teacher"), form=Ragged())},
        settings={"default": {"temperature": 1.0}, "other temperature": {"temperature": 0.5}},
        claims=_TEACHER,
        reach=f"--custom-rm-path {score}, --custom-reward-post-process-path {process}, --rollout-temperature",
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
    result = Use("rollout_data")
    return one_call(
        path=f"{ADVANTAGES} -> {PENALTY}",
        stage="advantage",
        call=ADVANTAGES,
        arguments={"args": Namespace(**args.parts, opd_kl_coef=Knob("coefficient")), "rollout_data": data},
        produced_by={
            "rollout_data": f"{MASKS}; log_probs and teacher_log_probs: actor.py, train_actor, or the samples' "
            "teacher_log_probs in rollout.py, _convert_samples_to_train_data"
        },
        unused=frozenset({"excluded"}),
        outputs={
            "advantage": Output("B T", "reward", "advantage", at=result["advantages"], form=Ragged()),
            "reverse kl": Output("B T", "nats", "kl.k1", at=result["opd_reverse_kl"], form=Ragged()),
        },
        settings={"grpo, distilled": {"coefficient": 1.0}},
        claims=_PENALTY,
        reach="--use-opd, --opd-kl-coef 1.0, --advantage-estimator grpo",
    )
