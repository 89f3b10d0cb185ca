"""slime's training step on FSDP: loss and logged metrics of packed micro-batches, in revisions with this backend."""

import inspect
from collections.abc import Callable, Iterator, Mapping
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.codecs import Column
from rl_sentinel.adapters.kit.containers import Table
from rl_sentinel.adapters.kit.forms import Ragged
from rl_sentinel.adapters.kit.layout_counts import MICRO_BATCHES
from rl_sentinel.adapters.kit.replacement import bare_instance, replaced_globals
from rl_sentinel.adapters.kit.requirements import has_trained_token, no_empty_response
from rl_sentinel.adapters.kit.value_codecs import AllSettings, Constant
from rl_sentinel.adapters.slime.fsdp import ACTOR, DATA, PACK, pack_doubles, packs_of, rows_of
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary, Output, Step, Unbound
from rl_sentinel.core.call import Function, Use
from rl_sentinel.core.case import Settings
from rl_sentinel.core.claims import Claims, claims

PATH = f"{ACTOR}._train_step"

#: What the doubles hold where no response token is predicted.
_WRONG = 9.0

_MEAN = claims(
    "actor.py, _train_step: the sum of the means over each sample's tokens, divided by --global-batch-size",
    aggregation="sequence-mean-token-mean",
    rows="all",
    denominator="given",
)
_RATIO = claims("ppo_utils.py, compute_policy_loss: the ratio is exp(-ppo_kl), clipped", ratio=True)

#: Setting -> its numbers, and its claims.
FAMILIES: Mapping[str, tuple[Settings, Claims]] = {
    "grpo": (
        {"clip_low": 0.2, "clip_high": 0.28, "kl_loss_coef": 0.0},
        _MEAN | _RATIO | claims("arguments.py, --eps-clip, --eps-clip-high: the range of PPO", algorithm="ppo"),
    ),
    "grpo, KL": (
        {"clip_low": 0.2, "clip_high": 0.28, "kl_loss_coef": 0.25},
        _MEAN
        | _RATIO
        | claims("arguments.py, --use-kl-loss, --kl-loss-type k3", kl="k3")
        | claims("arguments.py, --eps-clip, --eps-clip-high: the range of PPO", algorithm="ppo"),
    ),
}

#: Logged name -> output: sums over micro-batches and ranks divided by the samples of the step.
_LOGGED: Mapping[str, Output] = {
    "train/pg_clipfrac": Output("", "", "clip_fraction", over="rows"),
    "train/entropy_loss": Output("", "nats", "entropy.mean", over="rows"),
}

_CALLER = (
    "slime/backends/fsdp_utils/actor.py, _train_core: packs of the rank's samples after the log-probs of the actor and "
    "of the reference, one pack per micro-batch, one optimizer step per --global-batch-size"
)


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """The step with and without a KL, in revisions whose actor has it as a method."""
    if not target.has(PATH) or not target.has(PACK):
        return
    if why := target.fails(PATH):
        yield Unbound(PATH, "policy-loss", why)
        return
    yield from bindable(target, *(_step(target, name) for name in FAMILIES))


class Model:
    """A double of the model: at each place of a pack, the log-prob of the next token and the entropy."""

    def __init__(self) -> None:
        """Without outputs, which each pack sets."""
        self.outputs = torch.zeros(0)

    def __call__(self, **_inputs: object) -> SimpleNamespace:
        """``[1, N, 2]``."""
        return SimpleNamespace(logits=self.outputs.unsqueeze(0))

    def parameters(self) -> list[Tensor]:
        """None: nothing is updated."""
        return []


def read_outputs(*, logits: Tensor, **_options: object) -> tuple[Tensor, Tensor]:
    """The double of log-probs and entropies of a pack: the outputs of :class:`Model` at all places but the last."""
    return logits[:-1, 0], logits[:-1, 1]


def train_packs(  # noqa: PLR0913 - functions of the target, and their arguments
    step: Callable[..., Any],
    pack: Callable[..., Any],
    owner: type,
    data: dict[str, Any],
    columns: dict[str, list[Tensor]],
    packs: int,
    options: Settings,
) -> dict[str, Any]:
    """The logged metrics of one optimizer step over the packs, of which ``train/loss`` is the loss."""
    logged: dict[str, Any] = {}
    parts, model = packs_of(pack, data, packs), Model()
    actor = bare_instance(
        owner,
        args=_arguments(len(data["rewards"]), options),
        model=model,
        optimizer=SimpleNamespace(param_groups=[], step=lambda: None, zero_grad=lambda **_options: None),
        lr_scheduler=SimpleNamespace(step=lambda: None, get_last_lr=list),
        global_step=0,
        **dict.fromkeys(("dp_size", "cp_size"), 1),
        **dict.fromkeys(("cp_rank", "dp_rank", "rank"), 0),
        **dict.fromkeys(("dp_group", "cp_group", "dp_mesh"), None),
    )
    log = SimpleNamespace(log=lambda *values, **_options: logged.update(next(v for v in values if isinstance(v, dict))))
    doubles: dict[str, Any] = {
        **dict.fromkeys(("get_logprob_and_entropy", "get_logprob_and_entropy_with_cp"), read_outputs),
        **dict.fromkeys(("tracking_utils", "logging_utils", "wandb"), log),
        "dist": SimpleNamespace(get_rank=lambda: 0, all_gather_object=_gather),
    }
    accumulated: dict[str, Any] = {}
    with replaced_globals(inspect.unwrap(step).__globals__, **doubles):
        for number, part in enumerate(parts):
            model.outputs = torch.stack([_placed(part, columns[name]) for name in ("logprob", "entropy")], -1)
            part["log_probs"] = _placed(part, columns["old_logprob"])[:-1]
            part["ref_log_probs"] = _placed(part, columns["ref_logprob"])[:-1]
            step(actor, part, accumulated, number, [len(parts)])
    return logged


def _gather(results: list[Any], own: Any, **_options: object) -> None:  # noqa: ANN401 - any object
    """The double of a gathering of one process."""
    results[0] = own


def _placed(part: dict[str, Any], rows: list[Tensor]) -> Tensor:
    """``[N]``: numbers of responses at the places that predict their tokens."""
    places = [
        torch.arange(int(end) - 1 - int(count), int(end) - 1)
        for end, count in zip(part["cu_seqlens"][1:], part["response_lengths"], strict=True)
    ]
    numbers = torch.cat([rows[row] for row in rows_of(part)])
    return torch.full((len(part["tokens"]),), _WRONG).index_put((torch.cat(places),), numbers)


def _arguments(rows: int, options: Settings) -> SimpleNamespace:
    return SimpleNamespace(
        eps_clip=options["clip_low"],
        eps_clip_high=options["clip_high"],
        advantage_estimator="grpo",
        entropy_coef=0.0,
        use_kl_loss=bool(options["kl_loss_coef"]),
        kl_loss_coef=options["kl_loss_coef"],
        kl_loss_type="k3",
        global_batch_size=rows,
        rollout_temperature=1.0,
        clip_grad=1.0,
        **dict.fromkeys(
            (
                "use_tis",
                "use_opsm",
                "use_unbiased_kl",
                "use_rollout_logprobs",
                "calculate_per_token_loss",
                "true_on_policy_mode",
                "get_mismatch_metrics",
            ),
            False,
        ),
    )


def _step(target: Target, name: str) -> Boundary:
    settings, claimed = FAMILIES[name]
    columns = {
        n: Column(n, Ragged(), leaf=n == "logprob") for n in ("logprob", "old_logprob", "ref_logprob", "entropy")
    }
    step = Step(
        call=train_packs,
        name="logged",
        arguments={
            "step": Constant(Function(PATH)),
            "pack": Constant(Function(PACK)),
            "owner": Constant(Function(ACTOR)),
            "data": Table(DATA),
            "columns": Table(columns),
            "packs": MICRO_BATCHES,
            "options": AllSettings(),
        },
        doubles=pack_doubles(target),
        produced_by={"data": _CALLER},
    )
    logged, with_kl = Use("logged"), bool(settings["kl_loss_coef"])
    outputs = {"loss": Output("", "", "loss", at=logged["train/loss"])}
    outputs |= {n: Output("", o.unit, o.quantity, over=o.over, at=logged[n]) for n, o in _LOGGED.items()}
    unused = {"token", "reward", "returns", "rollout_logprob", "prompt_length", "length"}
    return Boundary(
        path=f"{PACK} -> {PATH}",
        stage="policy-loss",
        steps=(step,),
        unused=frozenset(unused | (set() if with_kl else {"ref_logprob"})),
        outputs=outputs,
        settings={name: settings},
        claims=claimed,
        reach=f"--train-backend fsdp{', --use-kl-loss' if with_kl else ''}",
        requires=(no_empty_response, has_trained_token),
    )
