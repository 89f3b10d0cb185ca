"""The overlong penalty of SkyRL's DAPO trainer. The trainer is an example in checkouts, not in the package."""

import copy
from collections.abc import Iterator, Mapping
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.containers import Table
from rl_sentinel.adapters.kit.forms import Ragged
from rl_sentinel.adapters.kit.replacement import bare_instance
from rl_sentinel.adapters.kit.requirements import (
    groups_are_equal,
    no_empty_response,
    prompts_are_contiguous,
    within_limit,
)
from rl_sentinel.adapters.kit.value_codecs import Constant, knobs
from rl_sentinel.adapters.skyrl.arguments import UIDS
from rl_sentinel.adapters.skyrl.rollout import GENERATED, generated, output_of, trainer_object
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary, Output, Unbound, one_call
from rl_sentinel.core.call import Function, Use
from rl_sentinel.core.claims import claims

#: Paths of the trainer's class, newest first.
TRAINERS = tuple(f"examples.{folder}algorithms.dapo.main_dapo.DAPOTrainer" for folder in ("train.", ""))

_PAYS = claims(
    "main_dapo.py, postprocess_generator_output: the soft overlong punishment of arXiv 2503.14476, over the last "
    "overlong_buffer_len tokens up to sampling_params.max_generate_length; then the reward of each token",
    algorithm="outcome less the overlong penalty at the last response token",
)


class Section(dict[str, Any]):
    """A section of the configuration, whose values are items and attributes, as those of OmegaConf are."""

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - any value
        """The value of this name."""
        try:
            return self[name]
        except KeyError as error:
            raise AttributeError(name) from error


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the trainer's method, if the target is a checkout."""
    path = next((path for path in TRAINERS if target.has(path)), "")
    if path and not target.fails(path):
        yield from bindable(target, _overlong(target, path))


def overlong_rewards(
    owner: type,
    trainer: SimpleNamespace,
    output: dict[str, Any],
    uids: list[str],
    numbers: Mapping[str, Any],
) -> list[Tensor]:
    """Apply DAPO's penalty, and return the reward of each token; ``trainer`` is a fake trainer.

    The method may change its argument in place; the trainer uses only its result.
    """
    algorithm = trainer.cfg.trainer.algorithm
    algorithm.overlong_buffer_len, algorithm.overlong_buffer_penalty_factor = numbers["buffer"], numbers["factor"]
    # In releases before March 2026:
    algorithm.overlong_buffer = Section(len=numbers["buffer"], penalty_factor=numbers["factor"])
    trainer.cfg.generator.sampling_params.max_generate_length = numbers["limit"]
    processed = bare_instance(owner, **vars(trainer)).postprocess_generator_output(copy.deepcopy(output), uids)
    return [torch.tensor(row, dtype=torch.float32) for row in output_of(processed)["rewards"]]


def _overlong(target: Target, path: str) -> Boundary:
    return one_call(
        path=f"{path}.postprocess_generator_output",
        stage="reward",
        call=overlong_rewards,
        name="rewards",
        arguments={
            "owner": Constant(Function(path)),
            "trainer": trainer_object(target),
            "output": generated(),
            "uids": UIDS,
            "numbers": Table(knobs("limit", "buffer", "factor")),
        },
        produced_by={"output": GENERATED},
        unused=frozenset({"token", "mask", "rollout_logprob", "group", "prompt_length"}),
        outputs={"token_reward": Output("B T", "reward", "token_reward", at=Use("rewards"), form=Ragged())},
        settings={"overlong": {"limit": 4, "buffer": 2, "factor": 0.5}},
        claims=_PAYS,
        reach="examples/train/algorithms/dapo/main_dapo.py",
        requires=(prompts_are_contiguous, groups_are_equal, no_empty_response, within_limit),
    )
