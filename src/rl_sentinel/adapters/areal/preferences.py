"""AReaL's DPO: the engine's loss on a micro-batch of packed pairs, and the metrics that it logs."""

from collections.abc import Iterator, Mapping

from rl_sentinel.adapters.areal.arguments import packed
from rl_sentinel.adapters.areal.supervised import logged_loss
from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.codecs import Column, CumulativeLengths
from rl_sentinel.adapters.kit.containers import Table
from rl_sentinel.adapters.kit.pairs import rows_are_pairs, trained_pairs
from rl_sentinel.adapters.kit.requirements import every_row_trains
from rl_sentinel.adapters.kit.sequences import PackedSequence
from rl_sentinel.adapters.kit.value_codecs import Constant, knobs
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary, Output, Unbound, one_call
from rl_sentinel.core.call import Function, Use
from rl_sentinel.core.case import Settings
from rl_sentinel.core.claims import Claims, claims

PATH = "areal.trainer.dpo.dpo_engine.compute_dpo_loss"

_DOC = "areal/api/cli_args.py, DPOEngineConfig.loss_type: {}"
_PAIRED = claims(
    "functional.py, dpo_pair_logratios: sequences are interleaved, chosen_0, rejected_0, chosen_1 and so on",
    pairing="adjacent",
)
_ENGINE = (
    "areal/engine/fsdp_engine.py, _compute_logprobs_and_loss: log-probs of packed sequences, position t about token "
    "t + 1, beside the unshifted loss_mask; areal/trainer/dpo_trainer.py: ref_logprobs from the reference's forward "
    "pass; areal/dataset/hhrlhf.py: loss_mask is True at tokens of the response"
)

#: Setting -> its numbers, and the formula that the documentation names.
FAMILIES: Mapping[str, tuple[Settings, Claims]] = {
    "sigmoid": (
        {"beta": 0.5, "loss_type": "sigmoid"},
        claims(_DOC.format("'sigmoid' is the standard DPO loss"), algorithm="dpo"),
    ),
    "ipo": (
        {"beta": 0.5, "loss_type": "ipo"},
        claims("dpo_engine.py, compute_dpo_loss: log-ratios per token of a completion", algorithm="ipo of means"),
    ),
}

#: Logged name -> algorithm of the metric.
_LOGGED: Mapping[str, str] = {
    "chosen_reward/avg": "implicit reward of preferred responses",
    "rejected_reward/avg": "implicit reward of other responses",
    "reward_margin/avg": "implicit reward margin",
    "reward_accuracy/avg": "implicit reward accuracy",
}


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """One boundary for each loss type."""
    if target.has(PATH):
        yield from bindable(target, *(_loss(name, settings, claimed) for name, (settings, claimed) in FAMILIES.items()))


def _loss(name: str, settings: Settings, claimed: Claims) -> Boundary:
    data = {
        "cu_seqlens": CumulativeLengths("total"),
        "loss_mask": Column("mask", PackedSequence()),
        "ref_logprobs": packed("ref_logprob"),
    }
    result = Use("result")
    logged = {n: Output("", "nats", at=result["logged"][n]) for n in _LOGGED}
    return one_call(
        path=PATH,
        stage="policy-loss",
        call=logged_loss,
        name="result",
        arguments={
            "loss": Constant(Function(PATH)),
            "logprobs": packed("logprob"),
            "entropy": Constant(None),
            "input_": Table(data),
            **knobs(*settings),
        },
        produced_by={"input_": _ENGINE},
        outputs={"loss": Output("", "", "loss", at=result["loss"]), **logged},
        settings={name: settings},
        claims=_PAIRED
        | claimed
        | claims("dpo_engine.py, compute_dpo_loss, stats_tracker.stat", output_algorithms=_LOGGED),
        reach=", ".join(f"actor.{setting}={value}" for setting, value in settings.items()),
        unused=frozenset({"prompt_length", "length"}),
        requires=(rows_are_pairs, every_row_trains),
        domain=trained_pairs,
    )
