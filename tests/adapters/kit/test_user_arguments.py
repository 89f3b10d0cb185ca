"""The form in which a parameter of a user's function gets its column."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import rl_sentinel
from rl_sentinel.adapters.kit.user_arguments import arguments_of
from rl_sentinel.adapters.kit.value_codecs import Constant
from rl_sentinel.core.batch import batch_of
from rl_sentinel.core.codec import Codec, Inputs, Sizes
from rl_sentinel.core.errors import SentinelError, Unbindable
from rl_sentinel.core.layout import Layout

MASK = torch.tensor([[True, True, False], [True, True, True]])
BATCH = batch_of(
    MASK, reward=torch.tensor([1.0, 2.0]), length=torch.tensor([2, 3]), group=torch.tensor([4, 5]), value=MASK * 3.0
)


def _passed(function: Callable[..., object], **bind: Any) -> dict[str, Any]:
    return {name: codec.put(Inputs(BATCH)) for name, codec in _codecs(function, **bind).items()}


def _codecs(function: Callable[..., object], **bind: Any) -> dict[str, Codec]:
    return arguments_of(function, "advantage", bind).codecs


def _reads(function: Callable[..., object]) -> set[str]:
    codecs = _codecs(function).values()
    return {column for codec in codecs for column in codec.columns | codec.shapes}


def annotated(group: np.ndarray[Any, Any], uid: Tensor, index: object, uids: "np.ndarray[Any, Any]") -> None:
    """Labels in two forms."""


def spelled(group: "np.ndarray[Any, Any]", groups: object, group_ids: "Tensor") -> None:
    """An annotation in words, one that says nothing, and a tensor's."""


def masked(mask: Tensor, response_mask: Tensor, values: Tensor, gamma: float, colour: int = 7) -> None:
    """Masks in two forms, a number, and a name that nobody knows."""


def test_labels_are_numpy_where_said_or_usual() -> None:
    """The annotation decides; without one, the names that frameworks use for arrays of uids."""
    passed = _passed(annotated)
    assert {n for n, v in passed.items() if isinstance(v, np.ndarray)} == {"group", "index", "uids"}
    assert passed["index"].dtype == object
    assert passed["index"].tolist() == ["prompt-4", "prompt-5"]
    assert torch.equal(passed["uid"], torch.tensor([4, 5]))
    passed = _passed(spelled)
    assert [isinstance(v, np.ndarray) for v in passed.values()] == [True, False, False]
    assert isinstance(_passed(lambda index: index)["index"], np.ndarray)
    assert isinstance(_passed(lambda group: group)["group"], Tensor)


@pytest.mark.parametrize("name", ["reward", "rewards", "score", "scores", "outcome"])
def test_a_reward_per_row(name: str) -> None:
    """These names are the outcome reward, one number a row."""
    function = eval(f"lambda {name}: 0")  # noqa: S307 - a parameter of this name
    assert torch.equal(_passed(function)[name], torch.tensor([1.0, 2.0]))
    assert _reads(function) == {"reward"}


@pytest.mark.parametrize("name", ["token_level_rewards", "token_rewards"])
def test_a_reward_per_token(name: str) -> None:
    """These have the outcome reward on the last token of the response."""
    function = eval(f"lambda {name}: 0")  # noqa: S307 - a parameter of this name
    assert torch.equal(_passed(function)[name], torch.tensor([[0.0, 1.0, 0.0], [0.0, 0.0, 2.0]]))
    assert _reads(function) == {"reward", "token_reward", "length"}


def test_masks_and_numbers() -> None:
    """``response_mask`` counts, ``mask`` is true or false; a discount is below one; an unknown default stays."""
    passed = _passed(masked)
    assert passed.keys() == {"mask", "response_mask", "values", "gamma"}
    assert torch.equal(passed["mask"], MASK)
    assert torch.equal(passed["response_mask"], MASK.to(torch.int64))
    assert torch.equal(passed["values"], MASK * 3.0)
    assert passed["gamma"] == 0.9


def test_unknown_parameters() -> None:
    """Those without a default cannot be passed anything."""
    made = arguments_of(lambda rewards, colour, old_sums, size=3: (rewards, colour, old_sums, size), "advantage", {})
    assert made.unknown == ["colour", "old_sums"]


def test_a_binding_that_names_no_parameter() -> None:
    """The parameters are listed."""
    with pytest.raises(Unbindable, match=r"bind names color, expected parameters of .*: rewards, colour$"):
        arguments_of(lambda rewards, colour: (rewards, colour), "advantage", {"color": "reward"})


def test_prompt_ids_are_labels_unless_other_tokens_stand_beside_them() -> None:
    assert _reads(lambda rewards, prompt_ids: (rewards, prompt_ids)) == {"reward", "group"}
    assert _passed(lambda rewards, prompt_ids: (rewards, prompt_ids))["prompt_ids"].tolist() == [4, 5]
    tokens = _passed(lambda prompt_ids, completion_ids: (prompt_ids, completion_ids))["prompt_ids"]
    assert tokens.shape == (2, 1)


def test_functions_of_logits_take_no_model() -> None:
    with pytest.raises(Unbindable, match=r"takes a model \(model\), expected logits: pass the function that takes"):
        arguments_of(lambda model, input_ids: (model, input_ids), "batch", {})
    assert set(arguments_of(lambda logits, input_ids: (logits, input_ids), "batch", {}).codecs) == {
        "logits",
        "input_ids",
    }


def test_lists_of_numbers_and_of_tensors() -> None:
    """One number per response, one list or tensor per response, and one per prompt."""
    bind: dict[str, Any] = {"adv": "advantage[list]", "rewards": "reward[G lists]", "score": "reward[G ragged]"}
    passed = _passed(lambda adv, rewards, score: (adv, rewards, score), **bind)
    assert passed["adv"] == BATCH.advantage[:, 0].tolist()
    assert passed["rewards"] == [[1.0], [2.0]]
    assert [part.tolist() for part in passed["score"]] == [[1.0], [2.0]]

    def annotated_lists(values: list[list[float]], rewards: list[float], masks: list[Tensor]) -> None:
        """Lists by annotation."""

    passed = _passed(annotated_lists)
    assert passed["values"] == [[3.0, 3.0], [3.0, 3.0, 3.0]]
    assert passed["rewards"] == [1.0, 2.0]
    assert [part.tolist() for part in passed["masks"]] == [[True, True], [True, True, True]]


def test_groups_of_tokens_are_padded() -> None:
    """``[G, K, T]`` follows the padding of the layout, and is read back without it."""
    codec = _codecs(lambda values: values, values="value[G K T]")["values"]
    laid_out = codec.put(Inputs(BATCH, layout=Layout(extra=2)))
    assert (laid_out.shape, "extra" in codec.axes) == ((2, 1, 5), True)
    assert torch.equal(codec.take(laid_out, Sizes(rows=2, width=3))["value"], BATCH.value)


def test_the_known_name_of_a_number_binds() -> None:
    """As if the parameter had that name: its default is the number of the formula, or the usual one is passed."""

    def loss(logp: Tensor, coefficient: float, bound: float = 0.1) -> None:
        """Two numbers with names of their own."""

    arguments = arguments_of(loss, "policy-loss", {"coefficient": "kl_coef", "bound": "clip_range"})
    assert arguments.numbers == {"kl_loss_coef": 0.04, "clip_low": 0.1, "clip_high": 0.1}
    assert (arguments.unknown, sorted(arguments.codecs)) == ([], ["coefficient", "logp"])


def test_a_parameter_named_like_a_column_may_be_a_number() -> None:
    def loss(logp: Tensor, kl: float) -> None:
        """In a loss, ``kl`` usually is a KL per token."""

    arguments = arguments_of(loss, "policy-loss", {"kl": "kl_coef"})
    assert (arguments.numbers, arguments.codecs["kl"]) == ({"kl_loss_coef": 0.04}, Constant(0.04))
    assert not isinstance(arguments_of(loss, "policy-loss", {}).codecs["kl"], Constant)


def test_the_object_of_a_decorated_method_is_no_parameter() -> None:
    class Trainer:
        """Methods with a decorator."""

        @torch.no_grad()
        def advantages(self, rewards: Tensor) -> Tensor:
            return rewards

        @classmethod
        @torch.no_grad()
        def scores(cls, rewards: Tensor) -> Tensor:
            return rewards

    for method in (Trainer().advantages, Trainer.scores):
        assert arguments_of(method, "advantage", {}).unknown == []
        assert list(_codecs(method)) == ["rewards"]


def test_a_text_in_quotes_is_passed_as_it_is() -> None:
    def kl(logprob: Any, ref_logprob: Any, kind: Any) -> Any:
        difference = ref_logprob - logprob
        return -difference if kind == "k1" else difference.exp() - difference - 1

    assert rl_sentinel.check(kl, stage="kl", algorithm="k3", bind={"kind": "'k3'"}).ok
    assert not rl_sentinel.check(kl, stage="kl", algorithm="k3", bind={"kind": "'k1'"}).ok
    with pytest.raises(SentinelError, match="quote it: \"'k4'\""):
        rl_sentinel.check(kl, stage="kl", algorithm="k3", bind={"kind": "k4"})
