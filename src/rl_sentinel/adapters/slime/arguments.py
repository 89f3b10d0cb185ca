"""Build slime's arguments from a batch: a tensor per sample, packed tensors, command-line arguments."""

import inspect
from types import SimpleNamespace

import torch

from rl_sentinel.adapters.kit.codecs import Column, Lengths
from rl_sentinel.adapters.kit.containers import Namespace, Object
from rl_sentinel.adapters.kit.forms import Packed, PerRow, Ragged
from rl_sentinel.adapters.kit.value_codecs import Computed, constants, knobs
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.codec import Inputs

PPO = "slime.utils.ppo_utils"
LOSS = "slime.backends.megatron_utils.loss"
REDUCER = "slime.backends.megatron_utils.cp_utils.get_sum_of_sample_mean"

#: The line that produces the loss masks: integer tensors on the model's device.
MASKS = "slime/backends/megatron_utils/actor.py, _get_rollout_data: loss_masks to torch.int"

RESPONSE_LENGTHS = Lengths("response")
TOTAL_LENGTHS = Lengths("total")
LOSS_MASKS = Column("mask", Ragged(), torch.int32)
REWARDS = Column("reward", PerRow("list"))


def one_rank() -> SimpleNamespace:
    """The parallel state of one process, which slime's functions had as a parameter in January 2026."""
    numbers = {f"{name}_{what}": value for name in ("dp", "cp", "tp") for what, value in (("rank", 0), ("size", 1))}
    groups = dict.fromkeys(("dp_group", "dp_cp_group", "cp_group", "tp_group"))
    return SimpleNamespace(**numbers, **groups, dp_cp_rank=0, dp_cp_size=1, is_pp_last_stage=True, vpp_size=1)


#: The argument ``parallel_state``, which other revisions do not take.
PARALLEL_STATE = {"parallel_state": Object(one_rank, shared=True)}
OPTIONAL = frozenset(PARALLEL_STATE)


def loss_source(target: Target) -> str:
    """The source of the module with the losses, at its path in this revision.

    Raises:
        Unbindable: if the module is absent or fails to import.
    """
    path = target.locate(f"{LOSS}.compute_advantages_and_returns")
    return inspect.getsource(target.module(path.rpartition(".")[0]))


def samples(column: str) -> Column:
    """A column in the form of one tensor per sample."""
    return Column(column, Ragged())


def packed(column: str) -> Column:
    """A column in the form of one tensor with the tokens of all samples."""
    return Column(column, Packed())


def options(*names: str, **fixed: object) -> Object:
    """The namespace of arguments: the values of ``names`` come from the setting, those of ``fixed`` are constants."""
    return Namespace(**constants(**fixed), **knobs(*names))


def _log_ratio(inputs: Inputs) -> torch.Tensor:
    packed_form = Packed()
    return packed_form.lay_out(inputs.batch.old_logprob, inputs) - packed_form.lay_out(inputs.batch.logprob, inputs)


#: ``ppo_kl`` of the losses: loss.py, policy_loss_function: ppo_kl = old_log_probs - log_probs.
LOG_RATIO = Computed(
    frozenset({"old_logprob", "logprob"}), _log_ratio, "its two terms cannot be recovered from a difference"
)


def _mask_sums(inputs: Inputs) -> torch.Tensor:
    return inputs.batch.mask.sum(1).float()


#: Trained tokens of each sample's rollout; here each rollout has one sample.
MASK_SUMS = Computed(frozenset({"mask"}), _mask_sums, "the trained tokens cannot be recovered from their number")


def _group_sums(inputs: Inputs) -> torch.Tensor:
    whole = inputs.mini_batch
    same = inputs.batch.group.unsqueeze(1) == whole.group.unsqueeze(0)
    return (same * whole.mask.sum(1)).sum(1).float()


#: The same if a rollout has several samples, as in an agent's session: the rows of a group are one rollout here.
GROUP_SUMS = Computed(
    frozenset({"mask", "group"}), _group_sums, "the trained tokens cannot be recovered from their number"
)
