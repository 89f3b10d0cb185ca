"""slime's FSDP training, from samples to the optimizer step over ranks: loss and logged metrics.

Only revisions from September 2025 to March 2026 have this backend. The first of them pad their micro-batches.
"""

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace

import torch

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.codecs import Column
from rl_sentinel.adapters.kit.containers import Table
from rl_sentinel.adapters.kit.forms import Ragged
from rl_sentinel.adapters.kit.layout_counts import MICRO_BATCHES
from rl_sentinel.adapters.kit.replacement import nothing
from rl_sentinel.adapters.kit.requirements import equal_parts, has_trained_token, no_empty_response
from rl_sentinel.adapters.kit.value_codecs import AllSettings, Computed, Constant, Earlier, functions
from rl_sentinel.adapters.slime.fsdp import ACTOR, pack_fakes
from rl_sentinel.adapters.slime.fsdp_fakes import LOGPROBS, train_on_ranks
from rl_sentinel.adapters.slime.packing import cpu
from rl_sentinel.adapters.slime.rollout import even_ranks, received
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.batch import Batch, with_columns
from rl_sentinel.core.boundary import Boundary, Output, Step, Unbound
from rl_sentinel.core.call import Use
from rl_sentinel.core.case import Settings
from rl_sentinel.core.claims import Claims, claims
from rl_sentinel.core.codec import Codec, Inputs

PATH = f"{ACTOR}.train"

_MEAN = claims(
    "actor.py, train: the sum of the means over each sample's tokens, divided by --global-batch-size",
    aggregation="sequence-mean-token-mean",
    rows="all",
    denominator="given",
)
_RATIO = claims("ppo_utils.py, compute_policy_loss: the ratio is exp(-ppo_kl), clipped", ratio=True)
_PPO = _MEAN | _RATIO | claims("arguments.py, --eps-clip, --eps-clip-high: the range of PPO", algorithm="ppo")
_CLIP: Settings = {"clip_low": 0.2, "clip_high": 0.28}


@dataclass(frozen=True, slots=True)
class Family:
    """A command line, and its claims.

    Attributes:
        settings: numbers of the command line, by this package's names (``clip_low``), else slime's (``kl_loss_coef``).
        claims: the claims.
        options: other options of the command line, by slime's names.
        text: source texts, separated by ``|``; a revision supports the command line if its source contains one of them.
            Empty for every revision.
    """

    settings: Settings
    claims: Claims
    options: Settings = field(default_factory=dict)
    text: str = ""


#: Setting -> command line; ``--rollout-temperature`` applies to all log-probs.
FAMILIES: Mapping[str, Family] = {
    "grpo": Family(_CLIP, _PPO),
    "grpo, temperature": Family({**_CLIP, "temperature": 0.5}, _PPO),
    "grpo, KL": Family(
        {**_CLIP, "kl_loss_coef": 0.25},
        _PPO | claims("arguments.py, --use-kl-loss, --kl-loss-type k3", kl="k3"),
        {"use_kl_loss": True},
        "e_ref_model(|load_ref_model(",
    ),
    "grpo, entropy": Family({**_CLIP, "entropy_coeff": 0.5}, _PPO, {}, "entropy_coef *"),
    "grpo, tis": Family(
        {**_CLIP, "most": 2.0, "least": 0.0},
        _PPO
        | claims(
            "arguments.py: --use-tis, --tis-clip: truncated importance sampling",
            corrected_at_most=2.0,
            corrected_by="token",
        ),
        {"use_tis": True},
        "tis_clip",
    ),
    "gspo": Family(
        _CLIP,
        _MEAN | claims("actor.py, _train_step: one value per sequence", ratio=True, scope="sequence"),
        {"advantage_estimator": "gspo"},
        "seq_kl|compute_gspo_kl(",
    ),
}

#: Logged name -> output: sums over micro-batches and ranks divided by the samples of the step.
LOGGED: Mapping[str, Output] = {
    "train/pg_clipfrac": Output("", "", "clip_fraction", over="rows"),
    "train/ppo_kl": Output("", "nats", "kl.abs", over="rows"),
    "train/entropy_loss": Output("", "nats", "entropy.mean", over="rows"),
    "train/kl_loss": Output("", "nats", "kl.k3", over="rows"),
    "train/train_rollout_logprob_abs_diff": Output("", "nats", "kl.abs", over="rows"),
}

#: The same for the rollout, before the step; data.py, process_rollout_data: each rank has the raw rewards of all ranks.
ROLLOUT: Mapping[str, Output] = {
    "rollout/log_probs": Output("", "nats", "old_logprob.mean", over="rows"),
    "rollout/ref_log_probs": Output("", "nats", over="rows"),
    "rollout/advantages": Output("", "reward", "advantage.mean", over="rows"),
    "rollout/returns": Output("", "reward", over="rows"),
    "rollout/raw_reward": Output("", "reward", over="all"),
}

_PAIRS = {
    "train/ppo_kl": "old_logprob against logprob",
    "train/kl_loss": "logprob against ref_logprob",
    "train/train_rollout_logprob_abs_diff": "old_logprob against rollout_logprob",
}

_CALLER = (
    "slime/ray/actor_group.py, async_train: each rank's train with the data of the rollout; the models return the "
    "log-probs of a token at the place before it"
)


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the training on one rollout, with each command line that the revision supports."""
    if not target.has(PATH):
        return
    if why := target.fails(PATH):
        yield Unbound(PATH, "policy-loss", why)
        return
    if inspect.getsource(target.find(PATH)).rstrip().endswith("raise NotImplementedError"):
        return  # the skeleton of July 2025
    source = inspect.getsource(target.find(ACTOR))
    if "loss_function(" in source:
        yield Unbound(PATH, "policy-loss", "the training step calls the loss of another backend, which reads logits")
        return
    found = [n for n, family in FAMILIES.items() if any(text in source for text in family.text.split("|"))]
    yield from bindable(target, *(_training(target, name, source) for name in found))
    if "grpo, KL" in found:
        yield from bindable(target, _rollout(target, source))


def constant_in_row(batch: Batch) -> Batch:
    """Give the same advantage to all tokens of a response, as in GRPO."""
    first = batch.advantage[:, :1].expand_as(batch.advantage)
    return with_columns(batch, advantage=torch.where(batch.valid, first, batch.advantage))


def is_constant_in_row(inputs: Inputs) -> str:
    """The reason to skip a batch where advantages differ within a response; empty otherwise."""
    same = torch.equal(inputs.batch.advantage, constant_in_row(inputs.batch).advantage)
    return "" if same else "advantages differ within a response, but this trainer gives all its tokens one advantage"


#: The normalized reward of a response is the advantage of its tokens.
_REWARD = Computed(
    frozenset({"advantage"}), lambda inputs: float(inputs.batch.advantage[0, 0]), "a response has one reward"
)


def _logged(source: str, name: str) -> dict[str, Output]:
    """The metrics of the step that the revision logs under the command line ``name``."""
    absent = {
        "train/kl_loss": name != "grpo, KL",
        "train/entropy_loss": '"entropy_loss"' not in source,
        _DIFFERENCE: _DIFFERENCE.removeprefix("train/") not in source,
        **dict.fromkeys(("train/pg_clipfrac", "train/ppo_kl"), name == "gspo"),
    }
    return {n: output for n, output in LOGGED.items() if not absent.get(n)}


def _fakes(target: Target, source: str) -> dict[str, Callable[..., object]]:
    """Fakes that replace the GPU with the CPU."""
    module = ACTOR.rpartition(".")[0]
    fakes: Mapping[str, Callable[..., object]] = {"current_device": cpu, "synchronize": nothing}
    found = {f"{module}.torch.cuda.{n}": fake for n, fake in fakes.items() if f"torch.cuda.{n}()" in source}
    packing = pack_fakes(target)
    return found if any(n.endswith("current_device") for n in found) else {**found, **packing}


def _run(target: Target, family: Family, source: str) -> tuple[str, tuple[Step, ...]]:
    """The path of functions from samples to training, and the steps that call these functions."""
    path, steps = received(target, also={"reward": _REWARD})
    columns: dict[str, Codec] = {n: Column(n, Ragged()) for n in (*LOGPROBS, "entropy")}
    train = Step(
        call=train_on_ranks,
        name="trained",
        arguments={
            **functions(train=PATH, owner=ACTOR),
            "ranks": Earlier(Use("ranks")),
            "columns": Table(columns),
            "micro_batches": MICRO_BATCHES,
            "options": Constant(dict(family.options)),
            "numbers": AllSettings(),
        },
        fakes=_fakes(target, source),
        produced_by={"columns": _CALLER},
    )
    return f"{path} -> {PATH}", (*steps, train)


def _training(target: Target, name: str, source: str) -> Boundary:
    family, logged = FAMILIES[name], _logged(source, name)
    path, steps = _run(target, family, source)
    unused = {"group", "prompt_length", "token", "length", "excluded"}
    unused |= set() if name == "grpo, KL" else {"ref_logprob"}
    unused |= set() if name == "grpo, tis" or _DIFFERENCE in logged else {"rollout_logprob"}
    unused |= set() if name == "grpo, entropy" or "train/entropy_loss" in logged else {"entropy"}
    pairs = claims("actor.py, _train_step", output_pairs={n: p for n, p in _PAIRS.items() if n in logged})
    return Boundary(
        path=path,
        stage="policy-loss",
        steps=steps,
        unused=frozenset(unused),
        outputs=_read({"loss": Output("", "", "loss"), **logged}),
        settings={name: family.settings},
        claims=family.claims | pairs,
        reach="--train-backend fsdp" + "".join(f", --{n.replace('_', '-')}" for n in family.options),
        requires=_REQUIRES,
        domain=constant_in_row,
    )


def _rollout(target: Target, source: str) -> Boundary:
    """The boundary of the metrics of the rollout that the ranks train on."""
    family = FAMILIES["grpo, KL"]
    path, steps = _run(target, family, source)
    logged = {n: output for n, output in ROLLOUT.items() if n != "rollout/raw_reward" or '"raw_reward' in source}
    return Boundary(
        path=path,
        stage="metric",
        steps=steps,
        unused=frozenset({"group", "prompt_length", "token", "length", "logprob", "entropy", "rollout_logprob"}),
        outputs=_read(logged),
        settings={"rollout": family.settings},
        reach="--train-backend fsdp",
        requires=_REQUIRES,
        domain=constant_in_row,
    )


_REQUIRES = (has_trained_token, no_empty_response, even_ranks, equal_parts, is_constant_in_row)


def _read(outputs: Mapping[str, Output]) -> dict[str, Output]:
    return {name: replace(output, at=Use("trained")[name]) for name, output in outputs.items()}


_DIFFERENCE = "train/train_rollout_logprob_abs_diff"
