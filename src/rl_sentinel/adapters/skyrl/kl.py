"""SkyRL's KL estimators, and the trainer's step that applies a KL penalty to the reward."""

import inspect
from collections.abc import Iterator

import torch

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.configs import Config
from rl_sentinel.adapters.kit.containers import Object, Table
from rl_sentinel.adapters.kit.forms import Cast
from rl_sentinel.adapters.kit.value_codecs import Constant, Knob
from rl_sentinel.adapters.skyrl.arguments import CONFIG, MODULE, PRODUCED_BY, TRAINER, Arguments, arguments
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary, Output, Unbound, one_call
from rl_sentinel.core.call import Use
from rl_sentinel.core.claims import claims
from rl_sentinel.core.codec import Codec
from rl_sentinel.core.errors import Unbindable

PENALTY = f"{MODULE}.compute_approx_kl"
STEP = f"{TRAINER}.apply_reward_kl_penalty"
CONTROLLER = f"{MODULE}.FixedKLController"

KINDS = ("k1", "abs", "k2", "k3")

#: Switch of the first releases -> the estimator that it chooses; without a switch, the estimator is k1.
SWITCHES = {"use_kl_estimator_k3": "k3", "use_abs_kl": "abs"}

_ESTIMATORS = (
    "ppo_utils.py, compute_approx_kl, docstring: as in joschu.net/blog/kl-approx.html; worker.py, "
    "_forward_backward_micro: its mean is a term of the loss if use_kl_loss is set"
)

_SHAPED = "trainer.py, apply_reward_kl_penalty, docstring: applies a KL penalty to the rewards"

_MASKED = (
    "ppo_utils.py, compute_approx_kl: masked to the trainable tokens; upstream issue 1633: a run had NaN at "
    "masked positions, which multiplying by the mask let through"
)


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """One boundary for each estimator, then boundaries of the trainer's step."""
    try:
        forms = arguments(target)
    except Unbindable as why:
        yield from (Unbound.because(path, "kl", why) for path in (PENALTY, STEP))
        return
    switched = target.has(PENALTY) and set(SWITCHES) <= set(inspect.signature(target.find(PENALTY)).parameters)
    kinds = ("k1", *SWITCHES.values()) if switched else KINDS
    yield from bindable(target, *(_penalty(kind, forms, switched=switched) for kind in kinds))
    controlled = target.has(STEP) and "reward_kl_controller" in inspect.getsource(target.find(STEP))
    steps = (_step(kind, forms, switched=switched, controlled=controlled) for kind in ("k1", "k3"))
    yield from bindable(target, *steps)


def _switches(kind: str) -> dict[str, bool]:
    return {name: kind == chosen for name, chosen in SWITCHES.items()}


def _penalty(kind: str, forms: Arguments, *, switched: bool) -> Boundary:
    chosen: dict[str, Codec] = {name: Constant(value) for name, value in _switches(kind).items()}
    arguments_ = {
        "log_probs": forms.column("logprob"),
        "log_probs_base": forms.column("ref_logprob"),
        "loss_mask": forms.loss_mask,
        **(chosen if switched else {"kl_estimator_type": Knob("kind")}),
    }
    return one_call(
        path=PENALTY,
        stage="kl",
        call=PENALTY,
        name="kl",
        arguments=arguments_,
        produced_by={"loss_mask": PRODUCED_BY},
        outputs={"kl": Output("B T", "nats", f"kl.{kind}", form=Cast(forms.form, torch.float32))},
        settings={kind: {"kind": kind}},
        claims=claims(_ESTIMATORS, algorithm=kind, gradient=kind) | claims(_MASKED, masked_slots="any", masked=True),
        reach=f"trainer.algorithm.kl_estimator_type={kind}",
    )


def _step(kind: str, forms: Arguments, *, switched: bool, controlled: bool) -> Boundary:
    fixed = {f"trainer.algorithm.{name}": value for name, value in _switches(kind).items()} if switched else {}
    knobs = {} if switched else {"trainer.algorithm.kl_estimator_type": "kind"}
    knobs |= {} if controlled else {"trainer.algorithm.kl_loss_coef": "kl_coef"}
    owner = {
        "cfg": Config(CONFIG, fixed, knobs),
        "all_metrics": Table({}),
        "reward_kl_controller": Object(CONTROLLER, {"kl_coef": Knob("kl_coef")}, {"kl_coef": "value"}),
    }
    data = forms.training_input("action_log_probs", "base_action_log_probs")
    after = Use("data_after")
    return one_call(
        path=STEP,
        stage="kl",
        call=STEP,
        name="data_after",
        arguments={"self": Object("types.SimpleNamespace", owner), "data": data},
        produced_by={"data": PRODUCED_BY},
        unused=frozenset({"group"}),
        outputs={
            "token_reward": Output(
                "B T", "reward", "token_reward", at=after[forms.reward_key], form=Cast(forms.form, torch.float32)
            ),
            "kl": Output("", "nats", "kl.row_mean", at=after.attribute("metadata")["metrics"]["avg_kl"]),
        },
        settings={kind: {"kl_coef": 0.001, "kind": kind}},
        claims=claims(_SHAPED, output_algorithms={"token_reward": f"less {kind}"}),
        reach=f"trainer.algorithm.use_kl_in_reward=true, kl_estimator_type={kind}",
    )
