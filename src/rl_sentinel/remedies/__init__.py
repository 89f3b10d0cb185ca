"""Estimators of the signal library in the registries of frameworks: one import, one line of configuration."""

from collections.abc import Mapping

#: Framework -> how its configuration names an estimator, and those that have a remedy.
REMEDIES: Mapping[str, tuple[str, frozenset[str]]] = {
    "verl": (
        "algorithm.adv_estimator=",
        frozenset({"grpo", "rloo", "opo", "grpo_passk", "gpg", "reinforce_plus_plus_baseline"}),
    ),
}


def remedy(framework: str, reach: str) -> str:
    """What to import and to configure instead of an estimator of a framework, or an empty word.

    Args:
        framework: its name, as in a target.
        reach: the settings by which the framework comes to the estimator, apart by spaces.

    Example:
        >>> remedy("verl", "algorithm.adv_estimator=grpo")
        'import rl_sentinel.remedies.verl, and algorithm.adv_estimator=sentinel_grpo'
    """
    setting, names = REMEDIES.get(framework, ("", frozenset()))
    chosen = [word.removeprefix(setting) for word in reach.split() if setting and word.startswith(setting)]
    if len(chosen) != 1 or chosen[0] not in names:
        return ""
    return f"import rl_sentinel.remedies.{framework}, and {setting}sentinel_{chosen[0]}"
