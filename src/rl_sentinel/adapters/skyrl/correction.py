"""SkyRL's off-policy correction: importance weights and rejection masks of its losses."""

from collections.abc import Iterator, Mapping

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.configs import Config
from rl_sentinel.adapters.kit.result_forms import OffMask, RowWise
from rl_sentinel.adapters.skyrl.arguments import CONFIG, PRODUCED_BY, Arguments, arguments
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary, Output, Step, Unbound
from rl_sentinel.core.call import Use
from rl_sentinel.core.case import Settings
from rl_sentinel.core.claims import Scope
from rl_sentinel.core.errors import Unbindable

PATH = "skyrl.backends.skyrl_train.utils.off_policy_correction_utils.compute_off_policy_correction"

SECTION = "trainer.algorithm.off_policy_correction"

#: Name -> settings of the section, and the scope (token or sequence) of the weight or mask.
FAMILIES: Mapping[str, tuple[Settings, Scope]] = {
    "token weight": ({"tis_ratio_type": "token"}, "token"),
    "sequence weight": ({"tis_ratio_type": "sequence"}, "sequence"),
    "geometric mask": ({"sequence_mask_metric": "geometric"}, "sequence"),
    "product mask": ({"sequence_mask_metric": "product"}, "sequence"),
    "outlier mask": (
        {"outlier_token_is_threshold_low": 0.5, "outlier_token_is_threshold_high": 2.0},
        "sequence",
    ),
    "token mask": ({"token_mask_is_threshold_low": 0.5, "token_mask_is_threshold_high": 2.0}, "token"),
}


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """One boundary for each entry of :data:`FAMILIES`."""
    for name, (settings, scope) in FAMILIES.items():
        section = Config(CONFIG, knobs_at={f"{SECTION}.{knob}": knob for knob in settings}, section=SECTION)
        try:
            section.check(target)
            yield from bindable(target, _boundary(name, settings, scope, section, arguments(target)))
        except Unbindable as why:
            yield Unbound(PATH, "correct", str(why))


def _boundary(name: str, settings: Settings, scope: Scope, section: Config, forms: Arguments) -> Boundary:
    arguments_ = {
        "old_log_probs": forms.column("old_logprob"),
        "rollout_logprobs": forms.column("rollout_logprob"),
        "loss_mask": forms.loss_mask,
        "off_policy_correction": section,
    }
    keep = OffMask(forms.form, 1.0)
    outputs = {"keep": Output("B T", "", "keep", scope, at=Use("result")[2], form=keep)}
    if "tis_ratio_type" in settings:
        weight = Output("B T", "ratio", "weight", scope, at=Use("result")[0], form=RowWise(forms.form))
        outputs = {"weight": weight, **outputs}
    return Boundary(
        path=PATH,
        stage="correct",
        steps=(Step(call=PATH, name="result", arguments=arguments_, produced_by={"loss_mask": PRODUCED_BY}),),
        outputs=outputs,
        settings={name: settings},
        reach=", ".join(f"{SECTION}.{k}={v}" for k, v in settings.items()),
    )
