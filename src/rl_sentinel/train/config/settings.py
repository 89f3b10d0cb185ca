"""The tables of a recipe: one class per table, with its keys, ranges and defaults."""

import math
from typing import Annotated, Any, Literal

import pydantic
from pydantic import Field

from rl_sentinel.signal.normalization import Over
from rl_sentinel.signal.reduce import Mode

Count = Annotated[int, Field(ge=1)]
Positive = Annotated[float, Field(gt=0)]
NotNegative = Annotated[float, Field(ge=0)]
#: Seeds that torch accepts; learning rates that stay finite in float32 after the optimizer's divisions.
Seed = Annotated[int, Field(ge=0, lt=2**63)]
Rate = Annotated[float, Field(gt=0, le=1e30)]
Bound = Annotated[float | None, Field(allow_inf_nan=True)]
Share = Annotated[float, Field(ge=0, lt=1)]


class Table(pydantic.BaseModel):
    """A table of a recipe. Values of a wrong type are errors, and so are unknown keys, except in :class:`Component`."""

    model_config = pydantic.ConfigDict(
        extra="forbid", strict=True, frozen=True, allow_inf_nan=False, ser_json_inf_nan="constants"
    )


class Component(Table):
    """A component chosen by name, such as an estimator, with its parameters as further keys."""

    model_config = pydantic.ConfigDict(extra="allow", strict=True, frozen=True)
    name: str

    @property
    def parameters(self) -> dict[str, Any]:
        """The keys that are not fields of the class."""
        return dict(self.model_extra or {})


class LoraSettings(Table):
    """Low-rank matrices of rank ``rank`` beside the weights of the modules ``targets``, scaled by ``alpha / rank``.

    The modules in ``whole``, such as ``lm_head``, train with all their weights.
    """

    rank: Count = 16
    alpha: Positive = 32.0
    targets: Annotated[tuple[str, ...], Field(min_length=1)] = (
        *("q_proj", "k_proj", "v_proj", "o_proj"),
        *("gate_proj", "up_proj", "down_proj"),
    )
    whole: tuple[str, ...] = ()


class PolicySettings(Table):
    """A Llama from scratch with these sizes; with ``load``, a transformers model (folder or name) or a run's policy.

    A loaded model has its own sizes; those here have no effect then.

    ``device`` is the model's device: ``auto`` takes CUDA if it is available. ``recompute`` keeps only the inputs of
    layers for the gradient, and computes the rest again (gradient checkpointing). ``precision="bf16"`` runs the model
    under bfloat16 autocast. Weights, optimizer, log-probs and the signal stay in float32.
    """

    load: str = ""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    recompute: bool = False
    lora: LoraSettings | None = None
    precision: Literal["fp32", "bf16"] = "fp32"
    hidden: Count = 64
    layers: Count = 2
    heads: Count = 4
    inner: Count = 192
    positions: Count = 128


class WarmStartSettings(Table):
    """Supervised learning on the environment's demonstrations before RL; the weights are cached."""

    steps: Count
    rows: Count = 128
    rate: Rate = 3e-3
    seed: Seed = 0


class NormalizationSettings(Table):
    """The fields of ``signal.normalization.Normalization``."""

    mean: Over
    deviation: Over
    leave_one_out: bool = False
    biased: bool = False
    epsilon: NotNegative = 1e-6


class RolloutSettings(Table):
    """Sampling: ``prompts`` times ``responses`` trajectories per step, of at most ``tokens`` tokens per turn.

    ``engine`` is a module of ``train.rollout.engine``; ``url`` is the address of its server, if it has one. A
    trajectory has at most ``turns`` turns; they are one row if ``merged``, else a row each.
    ``unended`` decides about trajectories that were cut at the token limit: train on their reward, reject them, or
    train on them with their reward suppressed. ``staleness`` is how many updates the sampling policy lags behind.
    ``shuffled_rewards`` permutes rewards over trajectories, as a control experiment (needs ``--uncertified``).
    """

    engine: str = "process"
    url: str = ""
    staleness: Annotated[int, Field(ge=0)] = 0
    prompts: Count
    responses: Count
    tokens: Count
    temperature: Annotated[float, Field(ge=1e-2, le=1e2)] = 1.0
    turns: Count = 1
    merged: bool = True
    unended: Literal["train", "reject", "suppress"] = "train"
    shuffled_rewards: bool = False


class ChatSettings(Table):
    """A chat template for prompts and replies, and a system prompt.

    ``template`` is a Jinja file, or ``tokenizer`` for the template of the tokenizer.
    """

    template: str = "tokenizer"
    system: str = ""


class RewardSettings(Table):
    """Reward shaping before the estimator: shift, scale, clip to ``least`` and ``most``, and optionally normalize."""

    bias: float = 0.0
    scale: float = 1.0
    least: Bound = None
    most: Bound = None
    normalization: NormalizationSettings | None = None

    @pydantic.field_validator("least", "most")
    @classmethod
    def _no_bound(cls, bound: float | None, field: pydantic.ValidationInfo) -> float | None:
        """Replace -inf in ``least`` and inf in ``most``, which bound nothing, by None, since JSON has no infinity."""
        return None if bound == (-math.inf if field.field_name == "least" else math.inf) else bound


class LossSettings(Component):
    """A loss, by the name of its module, and how the losses of tokens are aggregated.

    ``chosen`` is a function of ``signal.covariance``, for a loss that treats some tokens differently.
    """

    aggregation: Mode
    length: Count | None = None
    chosen: Component | None = None


class KLSettings(Table):
    """A KL to the initial policy, by an estimator of ``signal.kl``: logged, in the reward, or in the loss.

    ``reward`` and ``loss`` are its coefficients. With ``target``, in nats per token, the coefficient adapts to the
    observed KL over about ``horizon`` samples (``signal.controller.Adaptive``).
    """

    estimator: str = "k3"
    reward: NotNegative = 0.0
    loss: NotNegative = 0.0
    target: Positive | None = None
    horizon: Positive | None = None


class CorrectionSettings(Table):
    """Corrections for the difference between the sampling policy and the policy before the update.

    ``reject`` are functions of ``signal.correction.rejection``; ``weight`` is a function of
    ``signal.correction.weights``, and ``bounds`` are functions of ``signal.correction.bounds`` for these weights.
    """

    reject: tuple[Component, ...] = ()
    weight: str = ""
    bounds: tuple[Component, ...] = ()


class UpdateSettings(Table):
    """The update: mini-batches of ``prompts`` prompts, one optimizer step each.

    A mini-batch is computed in parts of at most ``rows`` rows and at most ``tokens`` tokens, padding included; a longer
    row is a separate part. ``rate``, ``betas`` and ``decay`` are those of AdamW; ``clip`` is the largest gradient norm.
    The learning rate grows over the first ``ramp`` steps. A ``schedule`` other than ``constant`` decays it towards 0
    until the last step.
    """

    prompts: Count
    epochs: Count = 1
    rows: Count = 1024
    tokens: Count | None = None
    rate: Rate
    betas: tuple[Share, Share] = (0.9, 0.999)
    decay: Annotated[float, Field(ge=0, le=1e3)] = 0.0
    clip: Positive = 1.0
    ramp: Annotated[int, Field(ge=0)] = 0
    schedule: Literal["constant", "linear", "cosine"] = "constant"


class CriticSettings(Table):
    """The critic of an estimator that reads values; ``clip`` is the clip of the value loss, in reward units."""

    rate: Rate
    betas: tuple[Share, Share] = (0.9, 0.999)
    clip: Positive = 0.2


class EvaluationSettings(Table):
    """A held-out evaluation before the first step, after every ``every`` steps and after the last step.

    ``environment`` has the keys in which the held-out environment differs, such as ``file`` or ``split``. Each of
    ``tasks`` tasks gets a greedy response, and ``responses`` sampled responses for pass@k with each ``k``. The
    checkpoint with the largest metric ``best``, if it is larger than before the first step, is kept in addition to the
    newest ones.
    """

    every: Count
    tasks: Count = 64
    environment: dict[str, Any] = {}
    responses: Annotated[int, Field(ge=0)] = 0
    k: tuple[Count, ...] = ()
    best: str = "accuracy"


class CompletionsSettings(Table):
    """Which responses are logged and printed.

    The responses of every ``every``-th step are written to ``completions.jsonl`` (0: never), and ``show`` of them are
    printed.
    """

    every: Annotated[int, Field(ge=0)] = 1
    show: Annotated[int, Field(ge=0)] = 2


class CheckpointSettings(Table):
    """A checkpoint after every ``every`` steps and after the last step; the newest ``keep`` are kept.

    With ``background`` a copy of weights and moments is written while the next steps are trained; the loop waits for
    the copy only.
    """

    every: Count = 10
    keep: Annotated[int, Field(ge=2)] = 2
    background: bool = False
