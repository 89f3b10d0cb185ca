"""Fakes for SkyRL's policy worker on Megatron: a model with stored outputs, their readers, and a strategy."""

from typing import Any

import torch
from torch import Tensor

from rl_sentinel.adapters.skyrl.worker_fakes import Strategy


class Model:
    """A fake model on one pipeline stage; it returns the log-prob of each next token, and the entropy.

    It looks up the columns of a row, whose index is the row's first token.
    """

    def __init__(self, columns: dict[str, Tensor]) -> None:
        """Store the columns of all rows, in the trainer's layout."""
        self.columns = columns
        self.losses: list[Tensor] = []

    def __call__(self, sequences: Tensor, *_inputs: object, **_options: object) -> Tensor:
        """The output at every position, ``[B, S, 2]``."""
        whole = [torch.nn.functional.pad(self.columns[name], (0, 1), value=9.0) for name in ("logprob", "entropy")]
        return torch.stack(whole, -1)[sequences[:, 0]]

    def train(self) -> None:
        """Do nothing."""

    def zero_grad_buffer(self) -> None:
        """Forget the losses of earlier calls; they have no gradient then."""
        self.losses.clear()


def stored_log_probs(outputs: Tensor, *_tokens: object, **_options: object) -> Tensor:
    """A fake of the function for log-probs of sequences: it reads log-probs from the outputs of :class:`Model`."""
    return outputs[:, :-1, 0]


class StoredLogProbs:
    """A fake of the log-probs of tokens, where the model's outputs are log-probs over a vocabulary."""

    @staticmethod
    def apply(outputs: Tensor, tokens: Tensor, *_options: object) -> Tensor:
        """The output of each token, ``[1, N]`` of ``[1, N, V]``."""
        return outputs.gather(-1, tokens.unsqueeze(-1)).squeeze(-1)


def stored_entropy(outputs: Tensor, **_options: object) -> Tensor:
    """A fake of the function for entropies: it reads entropies from the outputs of :class:`Model`."""
    return outputs[..., 1]


class Copies(Strategy):
    """A fake strategy whose groups are numbers of ranks, all with the values of this rank."""

    def all_reduce(self, values: Any, *_args: object, **options: Any) -> Any:  # noqa: ANN401 - numbers by name
        """The values, as a mean or as a sum over the group."""
        return {name: x * options["group"] for name, x in values.items()} if options.get("op") == "sum" else values

    def optimizer_step(self, *_args: object, **_options: object) -> float:
        """The norm of the gradient, 1; Megatron's optimizer returns a Python number."""
        return 1.0


class Steps(Copies):
    """A fake strategy whose optimizer steps read the gradients, and do not clear Megatron's buffer of them.

    Megatron-LM, distrib_optimizer.py, zero_grad: clears the parameters' gradients; distributed_data_parallel.py,
    zero_grad_buffer: clears the buffer, and must be called before each step.
    """

    def __init__(self, losses: list[Tensor]) -> None:
        """Store the losses whose gradients are in the buffer; the model forgets them when it clears the buffer."""
        super().__init__()
        self.buffer = losses
        self.applied = torch.zeros(())

    def optimizer_step(self, *_args: object, **_options: object) -> float:
        """Apply the gradient of the losses in the buffer."""
        self.applied = torch.stack(self.buffer).sum()
        return super().optimizer_step()
