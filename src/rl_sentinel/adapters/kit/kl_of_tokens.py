"""Codec of a KL per token that the caller computes: k1, k2 or k3 against the reference."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from typing_extensions import override

from rl_sentinel.adapters.kit.codecs import FormCodec
from rl_sentinel.adapters.kit.forms import Padded
from rl_sentinel.core.codec import Form, Inputs
from rl_sentinel.formulas.kl_tokens import KL


@dataclass(frozen=True, slots=True)
class KlOfTokens(FormCodec):
    """A KL estimate per token (k1, k2 or k3), in nats, with a gradient with respect to the log-probs of the policy.

    Source: John Schulman, Approximating KL Divergence (2020).

    Example:
        >>> import torch
        >>> from rl_sentinel.adapters.kit.kl_of_tokens import KlOfTokens
        >>> from rl_sentinel.core.batch import batch_of
        >>> from rl_sentinel.core.codec import Inputs
        >>> columns = {"logprob": torch.tensor([[-1.0, -2.0]]), "ref_logprob": torch.tensor([[-1.0, -1.0]])}
        >>> KlOfTokens().put(Inputs(batch_of(torch.tensor([[True, True]]), **columns)))
        tensor([[ 0., -1.]])
    """

    kind: Literal["k1", "k2", "k3"] = "k1"
    form: Form = Padded()

    @property
    def columns(self) -> frozenset[str]:
        """The columns with the log-probs of the policy and of the reference."""
        return frozenset({"logprob", "ref_logprob"})

    @property
    def unreadable(self) -> Mapping[str, str]:
        """The columns of log-probs, with the reason why they cannot be read back."""
        return dict.fromkeys(self.columns, "log-probs cannot be read from a KL")

    @override
    def put(self, inputs: Inputs) -> Any:
        batch = inputs.batch
        return self.form.lay_out(KL[self.kind](batch)[self.kind].to(batch.logprob.dtype), inputs)
