"""Parameter names of logits and tokens, and their bindings in a loss that computes its log-probs from logits."""

from collections.abc import Collection, Mapping
from types import MappingProxyType

#: Parameter names of the tokens, for functions that compute log-probs from logits.
TOKEN_NAMES = (
    *("labels", "shift_labels", "shifted_labels", "input_ids", "completion_ids", "index", "indices", "idx", "ids"),
    *("targets", "actions", "responses"),
)


def bindings_of_logits(
    roles: Mapping[str, str], names: Collection[str], untrained: Mapping[str, int] = MappingProxyType({})
) -> dict[str, str]:
    """Parameter -> binding, for logits and tokens of a loss; empty if it takes log-probs, no logits, or several logits.

    Args:
        roles: the roles of its parameters.
        names: their names.
        untrained: name -> the id of tokens that do not train, for tokens that hold it.

    Example:
        >>> from rl_sentinel.adapters.kit.logit_names import bindings_of_logits
        >>> bindings_of_logits({"logits": "logits"}, ["logits", "actions"])
        {'logits': 'response_logits', 'actions': 'completion_ids'}
        >>> bindings_of_logits({"logits": "logits"}, ["logits", "labels"])
        {'logits': 'sequence_logits', 'labels': 'labels'}
        >>> bindings_of_logits({"logits": "logits"}, ["logits", "targets"], {"targets": -1})
        {'logits': 'response_logits', 'targets': 'response_targets'}
    """
    logits = [name for name, role in roles.items() if role == "logits"]
    if len(logits) != 1 or "logprob" in roles.values():
        return {}
    whole = bool({"labels", "input_ids", "attention_mask"} & set(names)) and not logits[0].startswith("shift")
    ids = "input_ids" if whole else "completion_ids"
    found = {logits[0]: "sequence_logits" if whole else "response_logits"}
    for name in _tokens(roles, names):
        masked = "targets" if untrained.get(name) == -1 else "labels" if "labels" in name or name in untrained else ""
        found[name] = (masked if whole else f"response_{masked}") if masked else ids
    return found


def bindings_of_marked_tokens(
    roles: Mapping[str, str], names: Collection[str], untrained: Mapping[str, int]
) -> dict[str, str]:
    """Parameter -> binding, for token ids that come with log-probs and mark the tokens that train.

    Args:
        roles: the roles of the parameters.
        names: their names.
        untrained: name -> the id of tokens that do not train, for tokens that hold it.

    Example:
        >>> from rl_sentinel.adapters.kit.logit_names import bindings_of_marked_tokens
        >>> bindings_of_marked_tokens({"logps": "logprob"}, ["logps", "targets", "actions"], {"targets": -1})
        {'targets': 'response_targets'}
    """
    marked = {name: untrained[name] for name in _tokens(roles, names) if name in untrained}
    return {name: "response_targets" if one == -1 else "response_labels" for name, one in marked.items()}


def _tokens(roles: Mapping[str, str], names: Collection[str]) -> list[str]:
    return [name for name in names if name in TOKEN_NAMES or roles.get(name) == "token"]
