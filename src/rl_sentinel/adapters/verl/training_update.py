"""Boundary of verl's training loop: the advantages that the actor's update gets."""

import inspect
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from rl_sentinel.adapters.kit.binding import try_bind
from rl_sentinel.adapters.kit.codecs import Column, PromptIds, ResponseMask
from rl_sentinel.adapters.kit.containers import Table
from rl_sentinel.adapters.kit.forms import AfterPrompt
from rl_sentinel.adapters.kit.requirements import (
    group_sizes,
    groups_are_equal,
    no_empty_response,
    prompts_are_contiguous,
)
from rl_sentinel.adapters.kit.reward_codecs import TokenRewards
from rl_sentinel.adapters.kit.value_codecs import Constant, Derived, Knob, constants
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.verl.advantages import DISCOUNTED, advantage_outputs, estimator_claims, estimators
from rl_sentinel.adapters.verl.arguments import MASK, every_token_is_trained
from rl_sentinel.adapters.verl.config_files import default_config
from rl_sentinel.adapters.verl.dispatch import unused_of
from rl_sentinel.adapters.verl.training_run import PATH, RUN, TRAINER, can_run, fakes
from rl_sentinel.adapters.verl.training_run_fakes import Sampled, train, trainer_of
from rl_sentinel.core.batch import Batch, with_columns
from rl_sentinel.core.boundary import Boundary, Unbound, one_call
from rl_sentinel.core.call import Function, Use
from rl_sentinel.core.codec import Codec, Inputs

#: An estimator that needs no other model than the actor, the one that needs a critic, and the one that needs a greedy
#: response per prompt; the others are bound at ``compute_advantage``, which the loop calls.
NAMES = ("grpo", "gae", "remax")

#: Estimators that are also bound with a reward model, which scores the responses after the rollout.
SCORED = ("grpo", "remax")

#: One step over all prompts, in order; batches are balanced over the ranks, as by default.
STEP: Mapping[str, Any] = {
    **RUN,
    "data.shuffle": False,
    "trainer.total_epochs": 1,
    "trainer.save_freq": -1,
    "trainer.balance_batch": True,
}

_REWARD_MODEL = "reward_model.enable=True (since February 2026: reward.reward_model.enable=True)"

#: The folder of checkpoints. It is not writable, because a run of one step must write no checkpoint.
_NO_FOLDER = Path("/dev/null/checkpoints")

_PRODUCED = (
    "experimental/agent_loop/agent_loop.py, _postprocess: prompts, responses, response_mask, attention_mask, and "
    "rm_scores, the reward at the last response token; older releases: workers/rollout, and a reward manager"
)


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the loop's first update with each estimator."""
    if can_run(target):
        yield from try_bind(target, PATH, "advantage", lambda: _updates(target))


def _updates(target: Target) -> Iterator[Boundary]:
    functions = estimators(target)
    loop = inspect.getsource(inspect.unwrap(target.find(PATH)))
    names = [name for name in NAMES if name in functions]
    for name, scored in [*((name, False) for name in names), *((name, True) for name in names if name in SCORED)]:
        yield update_boundary(
            target,
            name,
            path=PATH,
            owner=TRAINER,
            call=updated,
            fixed=STEP,
            fakes=fakes(target),
            setting=f"update, {name}" + ", a reward model" * scored,
            reach=f"algorithm.adv_estimator={name}" + f", {_REWARD_MODEL}" * scored,
            scored=scored,
            knows_mask='"response_mask" not in batch.batch' in loop,
        )


def updated(  # noqa: PLR0913 - a run has several parts
    kind: Any,  # noqa: ANN401 - a class of the target
    config: Any,  # noqa: ANN401 - an OmegaConf configuration
    columns: dict[str, Tensor],
    groups: list[str],
    size: int,
    critic: bool,  # noqa: FBT001 - passed by name
    reward_model: bool = False,  # noqa: FBT001, FBT002 - passed by name
) -> dict[str, Tensor]:
    """Run one step; return the advantages and returns of the batch of the update, in the order of ``groups``.

    With ``reward_model``, the rollout returns responses without rewards, and a reward model scores them.
    """
    prompts, sampled = sampled_prompts(columns, groups, size)
    config.data.train_batch_size, config.actor_rollout_ref.rollout.n = prompts, size
    trainer = trainer_of(kind, config, prompts, sampled, _NO_FOLDER, critic=critic)
    trainer.use_rm = trainer.actor_rollout_wg.scores_later = reward_model
    train(trainer)
    return updated_batch(trainer)


def sampled_prompts(columns: Mapping[str, Tensor], groups: list[str], size: int) -> tuple[int, Sampled]:
    """The number of prompts, and a sampler that draws ``size`` rows of ``columns`` for each prompt, in order."""
    names = list(dict.fromkeys(groups))
    rows_of = [[row for row, own in enumerate(groups) if own == name] for name in names]

    def sampled(numbers: list[int], greedy: list[bool]) -> dict[str, Tensor]:
        rows = [rows_of[number][numbers[:place].count(number) % size] for place, number in enumerate(numbers)]
        return rows_of_prompts(columns, numbers, torch.tensor(rows), torch.tensor(greedy))

    return len(names), sampled


def updated_batch(trainer: Any) -> dict[str, Tensor]:  # noqa: ANN401 - of the target
    """The advantages and returns of the first update, in the order of the columns that were sampled."""
    batch = trainer.actor_rollout_wg.updates[0].batch
    order = torch.argsort(batch["own_row"])
    return {name: batch[name][order] for name in ("advantages", "returns")}


def one_baseline_per_prompt(batch: Batch) -> Batch:
    """Give all rows of a prompt the baseline of its first row: a prompt has one greedy response."""
    first = (batch.group.unsqueeze(0) == batch.group.unsqueeze(1)).int().argmax(1)
    return with_columns(batch, reward_baseline=batch.reward_baseline[first])


def has_one_baseline_per_prompt(inputs: Inputs) -> str:
    """The reason to skip a batch where rows of a prompt have different baselines; empty otherwise."""
    batch = inputs.batch
    same = torch.equal(batch.reward_baseline, one_baseline_per_prompt(batch).reward_baseline)
    return "" if same else "responses of a prompt have different baselines, but a prompt has one greedy response"


def rows_of_prompts(
    columns: Mapping[str, Tensor], numbers: list[int], rows: Tensor, greedy: Tensor
) -> dict[str, Tensor]:
    """The tensors of sampled rows: a prompt token, which is the prompt's number, and the response of each row.

    The reward of a greedy response is the baseline.
    """
    own = {name: column[rows] for name, column in columns.items()}
    baseline = own.pop("baselines", None)
    if baseline is not None:
        alone = torch.zeros_like(own["rm_scores"])
        alone[:, 0] = baseline
        own["rm_scores"] = torch.where(greedy.unsqueeze(1), alone, own["rm_scores"])
    prompt = torch.tensor(numbers).unsqueeze(1)
    width = own["attention_mask"].shape[1]
    return own | {
        "prompts": prompt,
        "input_ids": torch.cat([prompt, own["responses"]], dim=1),
        "position_ids": torch.arange(width).repeat(len(numbers), 1),
        "own_row": rows,
    }


def update_boundary(  # noqa: PLR0913 - the parts in which the loops differ
    target: Target,
    name: str,
    *,
    path: str,
    owner: str,
    call: Callable[..., dict[str, Tensor]],
    fixed: Mapping[str, Any],
    fakes: Mapping[str, Callable[..., Any]],
    setting: str,
    reach: str,
    knows_mask: bool = True,
    scored: bool = False,
) -> Boundary:
    """The boundary of the advantages in the first update of a trainer with one estimator.

    ``call`` runs the update with the ``fixed`` settings and, if ``scored``, with a reward model.
    """
    critic = name == "gae"
    columns: dict[str, Codec] = {
        "responses": Column("token"),
        "attention_mask": ResponseMask(AfterPrompt(1)),
        "rm_scores": TokenRewards(),
        "own_log_probs": Column("old_logprob"),
    }
    columns |= {"response_mask": MASK} if knows_mask else {}
    columns |= {"own_values": Column("value")} if critic else {}
    columns |= {"baselines": Column("reward_baseline")} if name == "remax" else {}
    read = {"gae": "value", "remax": "reward_baseline"}.get(name)
    discounts = {f"algorithm.{knob}": Knob(knob, 1.0) for knob in ("gamma", "lam")}
    result = Use("updated")
    more = () if knows_mask else (every_token_is_trained,)
    return one_call(
        path=path,
        stage="advantage",
        call=call,
        name="updated",
        arguments={
            "kind": Constant(Function(owner)),
            "config": default_config(
                target,
                "",
                {**constants(**fixed), **discounts, "algorithm.adv_estimator": Constant(name)},
                resolved=True,
            ),
            "columns": Table(columns),
            "groups": PromptIds("strings-list"),
            "size": Derived(lambda inputs: group_sizes(inputs)[0]),
            "critic": Constant(critic),
            **({"reward_model": Constant(value=True)} if scored else {}),
        },
        fakes=fakes,
        produced_by={"columns": _PRODUCED},
        reads=frozenset(filter(None, ("reward", "token_reward", "mask", "group", "length", read))) - unused_of(name),
        unused=unused_of(name) | {"old_logprob"},
        outputs=advantage_outputs(result["advantages"], result["returns"]),
        settings={setting: DISCOUNTED.get(name, {})},
        claims=estimator_claims(name, estimators(target)[name]),
        reach=reach,
        requires=(prompts_are_contiguous, groups_are_equal, no_empty_response, has_one_baseline_per_prompt, *more)
        if name == "remax"
        else (prompts_are_contiguous, groups_are_equal, no_empty_response, *more),
        domain=one_baseline_per_prompt if name == "remax" else None,
    )
