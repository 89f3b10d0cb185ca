"""Estimators and losses of the signal library in frameworks' registries: one import, one line of configuration."""

from collections.abc import Mapping

_OUTCOMES = frozenset({"grpo", "rloo", "opo", "grpo_passk", "gpg", "reinforce_plus_plus_baseline"})

#: Framework -> setting that selects an estimator or a loss -> the values that have a remedy.
REMEDIES: Mapping[str, Mapping[str, frozenset[str]]] = {
    "verl": {
        "algorithm.adv_estimator=": _OUTCOMES,
        "actor.policy_loss.loss_mode=": frozenset({"vanilla", "gspo", "cispo", "sapo", "dro"}),
    },
    "skyrl": {
        "trainer.algorithm.advantage_estimator=": frozenset({"grpo", "rloo", "maxrl"}),
        "trainer.algorithm.policy_loss_type=": frozenset(
            {"regular", "dual_clip", "gspo", "cispo", "sapo", "importance_sampling"}
        ),
    },
}


#: Framework -> how to import the remedies in all of its processes, and to select a remedy by a setting.
STEPS: Mapping[str, str] = {
    "verl": "set VERL_USE_EXTERNAL_MODULES=rl_sentinel.remedies.verl in the environment, and {}",
    "skyrl": "add import rl_sentinel.remedies.skyrl to the training script, and set {}",
}

#: Setting as a worker of the framework knows it -> its prefix in the whole configuration.
_BEFORE: Mapping[str, str] = {"actor.policy_loss.loss_mode=": "actor_rollout_ref."}

#: Framework -> settings under which the framework recognizes one estimator by its name, and treats only this one in a
#: special way.
SPECIAL_SETTINGS: Mapping[str, frozenset[str]] = {"verl": frozenset({"trainer.use_v1=True"})}


def remedy(framework: str, reach: str) -> str:
    """How to replace an estimator or a loss of a framework in a run; empty if there is no remedy.

    It is also empty under a setting in ``SPECIAL_SETTINGS``: a remedy, which has another name, would behave differently.

    Args:
        framework: the name of the framework, as in a target.
        reach: the settings with which the framework calls the function, separated by spaces or commas.

    Example:
        >>> from rl_sentinel.remedies import remedy
        >>> remedy("verl", "algorithm.adv_estimator=grpo")
        'set VERL_USE_EXTERNAL_MODULES=rl_sentinel.remedies.verl in the environment, and algorithm.adv_estimator=sentinel_grpo'
    """  # noqa: E501 - the message is one line
    words = reach.replace(",", " ").split()
    selected = [
        (setting, word.removeprefix(setting))
        for setting in REMEDIES.get(framework, {})
        for word in words
        if word.startswith(setting)
    ]
    if len(selected) != 1 or SPECIAL_SETTINGS.get(framework, frozenset()) & set(words):
        return ""
    setting, name = selected[0]
    if name not in REMEDIES[framework][setting]:
        return ""
    return STEPS[framework].format(f"{_BEFORE.get(setting, '')}{setting}sentinel_{name}")
