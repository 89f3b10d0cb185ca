"""The role of a parameter whose name combines known words, such as ``completion_ref_logps``."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache


@dataclass(frozen=True, slots=True)
class Words:
    """The words in the names of a role.

    A name has a word of ``heads``, a word of ``marks`` (unless this is empty), and any words of ``beside``.
    """

    role: str
    heads: frozenset[str]
    beside: frozenset[str]
    marks: frozenset[str] = frozenset()

    def make(self, words: frozenset[str]) -> bool:
        """Whether a name that consists of these words has this role."""
        if not words & self.heads or (self.marks and not words & self.marks):
            return False
        return words <= self.heads | self.beside | self.marks


def _set(text: str) -> frozenset[str]:
    return frozenset(text.split())


#: Spellings of the log-prob of a token, as one word.
_LOGPROB = re.compile(r"(?<![a-z])(?:log_?(?:probs?|p|ps|pis?)|lps?)(?![a-z])")

#: Words that do not change which quantity a per-token name means.
_OF_TOKENS = _set("token tokens tok per response resp responses completion completions action actions output list")
_OF_RESPONSES = _set(
    "per seq seqs sequence sequences response responses completion completions sample samples list all"
)

#: Column of a policy's log-probs -> the words that mean this policy, not the current one.
POLICIES: Mapping[str, frozenset[str]] = {
    "rollout_logprob": _set(
        "rollout sampling sampler inference infer vllm sglang generation generator gen behavior behaviour behave"
    ),
    "ref_logprob": _set("ref reference base initial init sft"),
    "old_logprob": _set("old prev previous before"),
}
_POLICY = _set("policy pi theta model actor")

_PROMPT = _set("group prompt question problem example")
_SAMPLES = _set("gens generations samples rollouts responses completions trajs trajectories answers")
_OF_EPISODES = _set("group scalar trajectory traj episode episodes rm rlhf raw final total outcome")
_NORMALIZED = _set("normalized normalised whitened full raw group")
_VALUE = _set("value values val vals")
_TRAINED = _set("loss eos generated generation gen assistant valid target targets labels train trained trainable")

#: The words of each role; no name has two roles.
_NAMES = (
    Words("logprob", _set("logprob"), _OF_TOKENS | _POLICY | _set("new cur curr current trainer local next")),
    *(Words(role, _set("logprob"), _OF_TOKENS | _POLICY, marks) for role, marks in POLICIES.items()),
    Words("mask", _set("mask masks"), _OF_TOKENS, _OF_TOKENS - _set("list per") | _TRAINED),
    Words("mask", _set("is"), _set("token"), _set("response completion action assistant generated trained trainable")),
    Words("token_rewards", _set("reward rewards score scores"), _set("per level"), _set("token tok tokens")),
    Words("reward", _set("reward rewards score scores outcome outcomes"), _OF_RESPONSES | _OF_EPISODES),
    Words("group", _set("id idx index indices uid uids gid gids"), _set("list"), _PROMPT | _set("groups")),
    Words("group", _set("ids"), frozenset(), _PROMPT - _set("prompt")),  # ``prompt_ids`` may be tokens
    Words("group_size", _set("per"), _set("n num number of") | _SAMPLES, _PROMPT),
    Words("advantage", _set("advantage advantages adv advs"), _OF_TOKENS | _OF_RESPONSES | _NORMALIZED),
    Words("values", _VALUE, _OF_TOKENS | _set("critic state")),
    Words("value_prediction", _VALUE, _set("critic"), _set("new cur curr current pred preds predicted")),
    Words("old_value", _VALUE, _set("critic"), _set("old prev previous")),
    Words("returns", _set("return returns ret rets"), _OF_RESPONSES | _set("lambda discounted gae critic")),
    Words("entropy", _set("entropy entropies"), _OF_TOKENS | _set("policy")),
    Words("kl", _set("kl kls"), _set("div divergence token tokens per")),
    Words("logits", _set("logits"), _OF_TOKENS | _POLICY | _set("lm new current shift shifted")),
)


@cache
def role_of_words(name: str) -> str:
    """The role of a name that is made of known words in any order; empty if one is unknown, or if roles conflict.

    Example:
        >>> from rl_sentinel.adapters.kit.parameter_words import role_of_words
        >>> role_of_words("completion_ref_logps"), role_of_words("logprobs_old"), role_of_words("lp_theta")
        ('ref_logprob', 'old_logprob', 'logprob')
        >>> role_of_words("reward_model"), role_of_words("old_ref_logps")
        ('', '')
    """
    words = frozenset(_LOGPROB.sub("logprob", name.lower()).split("_"))
    found = {its.role for its in _NAMES if its.make(words)}
    return found.pop() if len(found) == 1 else ""
