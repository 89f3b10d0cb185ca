"""Fakes for slime's FSDP actor: its models, process group, profiler and optimizer, on one or more ranks."""

import inspect
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from rl_sentinel.adapters.kit.rank_threads import gather_from_ranks, rank_number, run_on_ranks
from rl_sentinel.adapters.kit.replacement import bare_instance, replaced_globals
from rl_sentinel.adapters.slime.rank_fakes import places_of, recording_trackers
from rl_sentinel.core.case import Settings

#: Columns of log-probs: of the trained model, of this model before its update, and of the reference.
LOGPROBS = ("logprob", "old_logprob", "ref_logprob")

#: The output of the models at positions that predict no response token.
_WRONG = 9.0

#: Arguments of every run, at slime's defaults.
_DEFAULTS: Mapping[str, Any] = {
    "micro_batch_size": 1,
    "n_samples_per_prompt": 1,
    "use_wandb": True,
    "use_tensorboard": False,
    "kl_loss_type": "k3",
    "kl_loss_coef": 0.0,
    "entropy_coef": 0.0,
    "tis_clip": 2.0,
    "tis_clip_low": 0,
    "opsm_delta": 1e-4,
    "rollout_temperature": 1.0,
    "clip_grad": 1.0,
    "eps_clip_c": None,
    "custom_tis_function_path": None,
    "ref_update_interval": None,
    "memory_snapshot_num_steps": None,
    "save_debug_train_data": None,
    "max_tokens_per_gpu": None,
    "data_pad_size_multiplier": 1,
    "attn_implementation": "flash_attention_2",
    "advantage_estimator": "grpo",
    **dict.fromkeys(
        (
            *("use_kl_loss", "use_tis", "use_opsm", "use_unbiased_kl", "use_rollout_logprobs", "offload"),
            *("calculate_per_token_loss", "true_on_policy_mode", "get_mismatch_metrics", "offload_train"),
            *("use_dynamic_batch_size", "wandb_always_use_train_step", "debug_rollout_only", "ci_test"),
            *("record_memory_history", "multimodal_keys", "fsdp_cpu_offload"),
        ),
        False,
    ),
}

#: Neutral name of a number -> its argument on slime's command line.
_NUMBERS = {
    "clip_low": "eps_clip",
    "clip_high": "eps_clip_high",
    "entropy_coeff": "entropy_coef",
    "temperature": "rollout_temperature",
    "most": "tis_clip",
    "least": "tis_clip_low",
}


class Models:
    """A fake actor and reference model: at each token of a sample, it returns log-prob and entropy for the next token.

    It returns the reference's log-probs while the reference's weights are loaded. Otherwise, it returns the trained
    model's log-probs if gradients are recorded, and the old policy's log-probs if not.
    """

    def __init__(self, tables: Mapping[str, Tensor], temperature: float) -> None:
        """Store ``tables`` ``[1 + N, 2]``, indexed by token id."""
        self.tables, self.temperature, self.loaded = tables, temperature, "actor"

    def __call__(self, *, input_ids: Tensor, **_inputs: object) -> SimpleNamespace:
        """Log-prob and entropy as logits, ``[1, N, 2]`` or ``[B, S, 2]``."""
        which = "logprob" if torch.is_grad_enabled() else "old_logprob"
        table = self.tables["ref_logprob" if self.loaded == "ref" else which]
        return SimpleNamespace(logits=table[input_ids] * self.temperature)

    def load(self, weights: str) -> None:
        """Load the weights with this name."""
        self.loaded = weights

    def parameters(self) -> list[Tensor]:
        """An empty list: nothing is updated."""
        return []

    def itself(self, *_device: object) -> "Models":
        """The model itself: nothing is moved."""
        return self

    cuda = cpu = eval = train = to = itself


def train_on_ranks(  # noqa: PLR0913 - functions of the target, and their arguments
    train: Callable[..., Any],
    owner: type,
    ranks: list[dict[str, Any]],
    columns: dict[str, list[Tensor]],
    micro_batches: int,
    options: Settings,
    numbers: Settings,
) -> dict[str, Any]:
    """Run slime's training step on all ranks, and return the logged metrics.

    ``loss`` is added to the metrics. Its value is the logged loss. Its gradient is the gradient that the update
    computed for the log-probs, averaged over the ranks.
    """
    rows = len(columns["logprob"])
    temperature = float(numbers.get("temperature") or 1.0)
    live, tables = _number_tokens(ranks, columns)
    args = SimpleNamespace(
        **{
            **_DEFAULTS,
            **options,
            **{_NUMBERS.get(name, name): value for name, value in numbers.items()},
            **dict.fromkeys(("global_batch_size", "rollout_batch_size"), rows),
            "micro_batch_size": rows // (len(ranks) * micro_batches),
        }
    )
    logged: dict[str, Any] = {}
    module = inspect.unwrap(train).__globals__
    fakes = {
        **recording_trackers(logged),
        **{name: _fake_of(module[name]) for name in _KERNELS if name in module},
        **dict.fromkeys(("train_metric_utils", "train_dump_utils"), _Quiet()),
        **dict.fromkeys(("timer", "inverse_timer"), lambda *_name: nullcontext()),
        "Timer": _Quiet,
        "get_gloo_group": lambda: None,
        "dist": _Group(len(ranks)),
        "process_rollout_data": lambda *_arguments: ranks[rank_number()],
        "tqdm": lambda items, **_options: items,
    }
    with (
        replaced_globals(module, **fakes),
        replaced_globals(vars(dist), get_rank=lambda *_group: rank_number()),
    ):
        run_on_ranks(
            len(ranks), lambda rank: train(_actor(owner, args, tables, temperature, rank, len(ranks)), 0, None)
        )
    gradient = tables["logprob"].grad
    update = (live - live.detach()) * (torch.zeros_like(live) if gradient is None else gradient) / len(ranks)
    renamed = {"rollout/raw_reward": logged.get("rollout/raw_rewards")} if "rollout/raw_rewards" in logged else {}
    return {**logged, **renamed, "loss": update.sum() + logged["train/loss"]}


def _actor(  # noqa: PLR0913 - what a rank has
    owner: type, args: SimpleNamespace, tables: Mapping[str, Tensor], temperature: float, rank: int, size: int
) -> Any:  # noqa: ANN401 - slime's actor
    model, reference = Models(tables, temperature), Models(tables, temperature)
    reference.load("ref")
    return bare_instance(
        owner,
        args=args,
        model=model,
        ref_model=reference if args.use_kl_loss else None,
        weights={name: name for name in ("actor", *(("ref",) if args.use_kl_loss else ()))},
        update_gpu_params_dict=model.load,
        update_cpu_params_dict=lambda _weights: None,
        optimizer=SimpleNamespace(param_groups=[], step=lambda: None, zero_grad=lambda **_options: None),
        lr_scheduler=SimpleNamespace(step=lambda: None, get_last_lr=list),
        tokenizer=SimpleNamespace(pad_token_id=0),
        prof=_Quiet(),
        hf_config=SimpleNamespace(),
        **dict.fromkeys(("dp_size", "world_size"), size),
        **dict.fromkeys(("dp_rank", "rank", "_rank"), rank),
        **dict.fromkeys(("cp_rank", "global_step", "micro_step"), 0),
        cp_size=1,
        **dict.fromkeys(("dp_group", "cp_group", "dp_mesh", "mesh", "max_tokens_per_gpu", "vlm_processor")),
        fsdp_cpu_offload=False,
    )


class _Quiet:
    """A fake profiler, timer or logging module. Each method returns its first argument, or None without arguments."""

    def __getattr__(self, _name: str) -> Callable[..., Any]:
        return lambda *values, **_options: values[0] if values else None


class _Group:
    """A fake ``torch.distributed`` for ranks that are threads of this process."""

    ReduceOp = SimpleNamespace(SUM=torch.sum, MAX=torch.amax)

    def __init__(self, size: int) -> None:
        self.get_world_size = lambda *_group: size

    def get_rank(self, *_group: object) -> int:
        """The current rank."""
        return rank_number()

    def barrier(self, **_options: object) -> None:
        """Do nothing: ranks only wait for each other in collectives."""

    def all_reduce(self, tensor: Tensor, op: Callable[..., Tensor] = torch.sum, group: object = None) -> None:  # noqa: ARG002
        """Reduce a tensor over the ranks, in place."""
        tensor.copy_(op(torch.stack(gather_from_ranks(tensor.clone())), dim=0))

    def all_gather_object(self, results: list[Any], item: Any, group: object = None) -> None:  # noqa: ANN401, ARG002
        """Write the objects of all ranks to ``results``."""
        results[:] = gather_from_ranks(item)


def _number_tokens(ranks: list[dict[str, Any]], columns: dict[str, list[Tensor]]) -> tuple[Tensor, dict[str, Tensor]]:
    """Number the tokens of all samples from 1; return the trained model's log-probs and entropies, and all tables.

    A table ``[1 + N, 2]`` has the log-prob and the entropy of the next token, by token id. The trained model's table
    is a leaf tensor.
    """
    places, start = {}, 1
    for data in ranks:
        for n, row in enumerate(places_of(data)):
            size, count = len(data["tokens"][n]), len(columns["logprob"][row])
            data["tokens"][n] = list(range(start, start + size))
            places[row] = torch.arange(start + size - 1 - count, start + size - 1)
            start += size
    where = torch.cat([places[row] for row in range(len(places))])
    empty = torch.full((start,), _WRONG)
    wide = {name: empty.index_put((where,), torch.cat(rows).float()) for name, rows in columns.items()}
    tables = {name: torch.stack([wide[name], wide["entropy"]], -1).detach() for name in LOGPROBS}
    tables["logprob"].requires_grad_()
    return torch.stack([wide["logprob"], wide["entropy"]], -1), tables


def _read(logits: Tensor, temperature: float | None) -> tuple[Tensor, Tensor]:
    """The log-probs and entropies of :class:`Models` at all positions except the last."""
    logits = logits.squeeze(0) if logits.shape[0] == 1 else logits
    places = logits[..., :-1, :]
    return places[..., 0] / (temperature or 1.0), places[..., 1] / (temperature or 1.0)


#: Functions of the actor's module that compute log-probs from logits, and whether they return entropies, too.
_KERNELS = {
    "gather_log_probs": False,
    "gather_log_probs_packed": False,
    "get_logprob_and_entropy": True,
    "get_logprob_and_entropy_with_cp": True,
}


def _fake_of(kernel: Callable[..., Any]) -> Callable[..., Any]:
    """A fake for one of :data:`_KERNELS`, with the same parameters; it divides by the argument ``temperature``."""
    signature = inspect.signature(kernel)

    def fake(*values: object, **options: object) -> Any:  # noqa: ANN401 - as the kernel
        given: Any = signature.bind(*values, **options).arguments
        temperature = given.get("temperature", given.get("rollout_temperature"))
        both = _read(given["logits"], temperature)
        return both if _KERNELS[kernel.__name__] else both[0]

    return fake
