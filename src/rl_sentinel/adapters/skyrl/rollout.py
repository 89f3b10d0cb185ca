"""SkyRL's conversion of generator output to the training batch, and the merge of several outputs."""

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from types import MethodType, SimpleNamespace
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad
from typing_extensions import override

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.codecs import Labels
from rl_sentinel.adapters.kit.containers import EachPrompt, EachRow, Object, Table
from rl_sentinel.adapters.kit.forms import Cast, PerRow, Ragged, RightAligned
from rl_sentinel.adapters.kit.requirements import (
    group_sizes,
    groups_are_equal,
    no_empty_response,
    prompts_are_contiguous,
)
from rl_sentinel.adapters.kit.row_codecs import RowPrompt, RowTokens
from rl_sentinel.adapters.kit.value_codecs import Constant, Derived, Earlier, Knob
from rl_sentinel.adapters.skyrl.arguments import TRAINER, UIDS, Arguments, arguments, config
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary, Output, Step, Unbound, one_call
from rl_sentinel.core.call import Function, Use
from rl_sentinel.core.claims import claims
from rl_sentinel.core.errors import Unbindable

PROCESS = f"{TRAINER}.postprocess_generator_output"
CONVERT = f"{TRAINER}.convert_to_training_input"
#: The method that pads the batch to a multiple of the workers, in older releases.
PAD = f"{TRAINER}.pad_batch"

OUTPUT = "skyrl.train.generators.base.GeneratorOutput"
MERGE = "skyrl.train.generators.utils.concatenate_generator_outputs"

GENERATED = (
    "skyrl/train/generators/skyrl_gym_generator.py, generate: prompt and response tokens, one reward per trajectory, "
    "loss masks and the engine's log-probs of the same length as the response; trainer.py, train: a uid per response"
)
_DOCS = claims(
    "trainer.py, convert_to_training_input: converts lists to a padded batch of tensors for training; preserves the "
    "order of generator_output",
    conserves=True,
)
_MERGED = claims("generators/utils.py: concatenate the generator outputs of multiple batches", conserves=True)


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the training batch of a rollout, and the merge of rollouts."""
    try:
        forms = arguments(target)
    except Unbindable as why:
        yield Unbound.because(CONVERT, "batch", why)
        return
    if target.has(PROCESS) and target.has(CONVERT):
        yield from bindable(target, _carried(target, _training_batch(target, forms)))
    if target.has(MERGE):
        yield from bindable(target, _carried(target, _merge()))


def _carried(target: Target, boundary: Boundary) -> Boundary:
    """The boundary, without the engine's log-probs if the generator does not return any, as in the first releases."""
    if not target.has(OUTPUT) or target.fails(OUTPUT) or "rollout_logprobs" in inspect.getsource(target.find(OUTPUT)):
        return boundary
    # The reward comes first: the check before an audit moves signals, and tokens are labels.
    names = ("reward", *(name for name in boundary.outputs if name not in ("reward", "rollout_logprob")))
    outputs = {name: boundary.outputs[name] for name in names}
    return replace(boundary, outputs=outputs, reads=boundary.reads - {"rollout_logprob"})


def generated() -> Table:
    """The generator's output: a dict of lists."""
    return Table(
        {
            "prompt_token_ids": EachRow(RowPrompt()),
            "response_ids": EachRow(RowTokens("token", "int")),
            "rewards": Labels("reward"),
            "loss_masks": EachRow(RowTokens("mask", "int")),
            "stop_reasons": Derived(lambda inputs: ["stop"] * inputs.batch.rows),
            "rollout_metrics": Constant(None),
            "rollout_logprobs": EachRow(RowTokens("rollout_logprob")),
        }
    )


@dataclass
class Dispatch:
    """A fake of the dispatch to data-parallel workers."""

    workers: int

    def get_lcm_dp_size(self) -> int:
        """The number of workers; the batch is padded to a multiple of this number."""
        return self.workers


def trainer_of(
    cfg: Any,  # noqa: ANN401 - the target's class
    prompts: int,
    samples: int,
    workers: int,
    pad_batch: Callable[..., Any] | None = None,
) -> SimpleNamespace:
    """A fake trainer; ``workers`` workers train the batch as one mini-batch."""
    cfg.trainer.train_batch_size = cfg.trainer.policy_mini_batch_size = prompts
    cfg.trainer.critic_mini_batch_size = prompts
    cfg.generator.n_samples_per_prompt = samples
    trainer = SimpleNamespace(
        cfg=cfg,
        tokenizer=SimpleNamespace(pad_token_id=0),
        all_metrics={},
        dispatch=Dispatch(workers),
        policy_model=SimpleNamespace(actor_infos=[SimpleNamespace(rank=SimpleNamespace(dp_size=workers))]),
        **dict.fromkeys(("critic_model", "ref_model")),
    )
    if pad_batch is not None:
        trainer.pad_batch = MethodType(pad_batch, trainer)
    return trainer


def output_of(processed: Any) -> Any:  # noqa: ANN401 - a dict of lists, or a tuple of it and uids
    """The processed rollout, without the uids that newer releases also return."""
    return processed[0] if isinstance(processed, tuple) else processed


def responses_of(batch: Any, rows: int, width: int) -> dict[str, Any]:  # noqa: ANN401 - the target's class
    """The response columns, padded to at least ``width``; ``count`` is ``rows`` plus the trained padding rows."""
    positions, name = batch["response_mask"].shape[1], "rewards" if "rewards" in batch else "custom_rewards"

    def cut(tensor: Tensor) -> Tensor:
        return pad(tensor[:rows, -positions:], (0, max(0, width - positions)))

    return {
        "tokens": cut(batch["sequences"]),
        "rewards": batch[name][:rows].sum(1),
        "masks": cut(batch["loss_mask"]),
        **({"logprobs": cut(batch["rollout_logprobs"])} if "rollout_logprobs" in batch else {}),
        "uids": batch.metadata["uids"][:rows],
        "count": rows + int(batch["loss_mask"][rows:].any(1).sum()),
    }


def trainer_object(target: Target) -> Object:
    """The fake trainer, with the number of prompts and samples of the batch."""
    return Object(
        trainer_of,
        {
            "cfg": config({}),
            "prompts": Derived(lambda inputs: len(group_sizes(inputs))),
            "samples": Derived(lambda inputs: group_sizes(inputs)[0]),
            "workers": Knob("workers", 1),
            "pad_batch": Constant(Function(PAD) if target.has(PAD) else None),
        },
        {"workers": "dispatch.workers"},
    )


def process_step(target: Target) -> Step:
    """The trainer's postprocessing of the generator's output; later steps read the trainer as ``Use("self")``."""
    return Step(
        call=PROCESS,
        name="processed",
        arguments={"self": trainer_object(target), "generator_output": generated(), "uids": UIDS},
        produced_by={"generator_output": GENERATED},
    )


def read_step(*, right: bool) -> Step:
    """Read the response columns of the training batch, which an earlier step returned as ``batch``."""
    return Step(
        call=responses_of,
        name="responses",
        arguments={
            "batch": Earlier(Use("batch")),
            "rows": Derived(lambda inputs: inputs.batch.rows),
            "width": Derived(lambda inputs: 0 if right else inputs.batch.width),
        },
    )


def batch_outputs(forms: Arguments) -> dict[str, Output]:
    """The outputs that :func:`read_step` reads."""
    responses, form = Use("responses"), forms.form
    return {
        "rollout_logprob": Output("B T", "nats", "rollout_logprob", at=responses["logprobs"], form=form),
        "token": Output("B T", "", "token", at=responses["tokens"], form=form),
        "mask": Output("B T", "", "mask", at=responses["masks"], form=Cast(form, torch.bool)),
        "reward": Output("B", "reward", "reward", at=responses["rewards"]),
        "uid": Output("B", "", "group", at=responses["uids"], form=PromptNumbers()),
        "rows": Output("", "", "rows", at=responses["count"]),
    }


def _training_batch(target: Target, forms: Arguments) -> Boundary:
    without_uids = Step(call=output_of, name="output", arguments={"processed": Earlier(Use("processed"))})
    convert = Step(
        call=CONVERT,
        name="batch",
        arguments={
            "self": Earlier(Use("self")),
            "generator_output": Earlier(Use("output")),
            "uids": Earlier(Use("uids")),
        },
    )
    return Boundary(
        path=f"{PROCESS} -> {CONVERT}",
        stage="batch",
        steps=(process_step(target), without_uids, convert, read_step(right=isinstance(forms.form, RightAligned))),
        outputs=batch_outputs(forms),
        settings={"default": {}, "two workers": {"workers": 2}},
        claims=_DOCS,
        reach="every run",
        requires=(prompts_are_contiguous, groups_are_equal, no_empty_response),
    )


class PromptNumbers(PerRow):
    """Read prompt uids as the group labels that they contain."""

    @override
    def read(self, value: Any, sizes: Any) -> Tensor:
        return torch.tensor([int(uid.rpartition("-")[2]) for uid in value])


def _merge() -> Boundary:
    merged = Use("merged")
    return one_call(
        path=MERGE,
        stage="batch",
        call=MERGE,
        name="merged",
        arguments={"generator_outputs": EachPrompt(generated())},
        produced_by={
            "generator_outputs": f"fully_async_trainer.py, convert_generation_group_mini_batch_to_training_input: one "
            f"output per prompt; {GENERATED}"
        },
        outputs={
            "rollout_logprob": Output("B T", "nats", "rollout_logprob", at=merged["rollout_logprobs"], form=Ragged()),
            "token": Output("B T", "", "token", at=merged["response_ids"], form=Ragged()),
            "mask": Output("B T", "", "mask", at=merged["loss_masks"], form=Cast(Ragged(), torch.bool)),
            "reward": Output("B", "reward", "reward", at=merged["rewards"], form=PerRow("list")),
        },
        claims=_MERGED,
        reach="fully asynchronous training",
        requires=(prompts_are_contiguous, no_empty_response),
    )
