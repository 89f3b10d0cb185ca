"""The step of slime's specimen: what its losses are passed, and what the laws find there."""

import pytest
import torch

from adapters.checks import Loads, bound, check_verdict, outputs_of
from adapters.slime_specimen import files
from rl_sentinel.adapters.slime import FRAMEWORK
from rl_sentinel.adapters.slime.families import POLICY
from rl_sentinel.adapters.slime.updates import boundaries
from rl_sentinel.core.batch import Batch, batch_of
from rl_sentinel.core.boundary import Boundary, Unbound
from rl_sentinel.laws.differs_from_reference import LAW as REF001
from rl_sentinel.laws.micro_batch_split_changes_loss import LAW as SPL001


def _batch() -> Batch:
    """Two responses, of which the second has an untrained token."""
    columns = {
        "logprob": [[0.0, 0.0], [0.0, 0.0]],
        "old_logprob": [[0.0, 0.0], [0.0, 0.0]],
        "advantage": [[1.0, 2.0], [4.0, 8.0]],
        "value": [[0.0, 0.0], [1.0, 3.0]],
        "entropy": [[0.5, 0.5], [1.5, 9.0]],
    }
    mask = torch.tensor([[True, True], [True, False]])
    return batch_of(mask, **{name: torch.tensor(rows) for name, rows in columns.items()})


def test_losses_by_hand(loads: Loads) -> None:
    """Mean of the samples' means, or of all trained tokens; reports beside it."""
    target = loads(FRAMEWORK, files(fixed=True))
    found = bound(FRAMEWORK, target)
    step = {s: outputs_of(target, found["policy_loss_function", s], s, _batch()) for s in ("grpo", "grpo, per token")}
    assert step["grpo"]["loss"].item() == -(1.5 + 4) / 2
    assert step["grpo"]["pg_loss"].item() == step["grpo"]["loss"].item()
    assert step["grpo"]["entropy_loss"].item() == (0.5 + 1.5) / 2
    assert step["grpo, per token"]["loss"].item() == pytest.approx(-7 / 3)
    value = outputs_of(target, found["value_loss_function", "value"], "value", _batch())
    assert value["loss"].item() == 1 / 2
    assert value["value_clipfrac"].item() == 1 / 2


@pytest.mark.parametrize(("fixed", "found"), [(True, False), (False, True)])
def test_mean_of_the_micro_batch(loads: Loads, fixed: bool, found: bool) -> None:
    """A loss divided by the rows of its micro-batch depends on how the batch is cut."""
    target = loads(FRAMEWORK, files(fixed=fixed))
    boundary = bound(FRAMEWORK, target)["policy_loss_function", "grpo"]
    check_verdict(SPL001, boundary, "grpo", target, found=found)


def test_samples_of_a_rollout_by_hand(loads: Loads) -> None:
    """Two samples of one rollout are averaged over the tokens of both."""
    target = loads(FRAMEWORK, files(fixed=True))
    name = "grpo, several samples"
    boundary = bound(FRAMEWORK, target)["policy_loss_function", name]
    assert outputs_of(target, boundary, name, _batch())["loss"].item() == pytest.approx(-7 / 3)


@pytest.mark.parametrize(("own", "found"), [("sample_denoms is None", False), ("True", True)])
def test_own_tokens_instead_of_the_rollouts(loads: Loads, own: str, found: bool) -> None:
    tree = files(fixed=True)
    tree = {path: source.replace("sample_denoms is None", own) for path, source in tree.items()}
    target, name = loads(FRAMEWORK, tree), "grpo, several samples"
    check_verdict(REF001, bound(FRAMEWORK, target)["policy_loss_function", name], name, target, found=found)


_TOKENS = 'sum(m.sum() for m in batch["loss_masks"])'
_OR_ONE = 'sum(m.sum().clamp(min=1) for m in batch["loss_masks"])'


@pytest.mark.parametrize(
    ("count", "found"),
    [(_TOKENS, (False, False)), (_OR_ONE, (True, False)), ('sum(batch["response_lengths"])', (True, True))],
    ids=["trained tokens", "at least one per sample", "all tokens"],
)
def test_denominator_of_the_mean_over_tokens(loads: Loads, count: str, found: tuple[bool, bool]) -> None:
    """Samples without a trained token show the first fault; without them, the second is visible beside it."""
    tree = {path: source.replace(_TOKENS, count) for path, source in files(fixed=True).items()}
    target = loads(FRAMEWORK, tree)
    for name, broken in zip(("grpo, per token", "grpo, per token, every sample trains"), found, strict=True):
        check_verdict(REF001, bound(FRAMEWORK, target)["policy_loss_function", name], name, target, found=broken)


def test_a_revision_without_sums_of_rollouts_averages_samples(loads: Loads) -> None:
    tree = {path: source.replace('batch["rollout_mask_sums"]', "None") for path, source in files(fixed=True).items()}
    settings = {setting for _, setting in bound(FRAMEWORK, loads(FRAMEWORK, tree))}
    assert "grpo" in settings
    assert "grpo, several samples" not in settings


def test_missing_functions_are_unbound(loads: Loads) -> None:
    tree = files(fixed=True)
    loss = "slime/backends/megatron_utils/loss.py"
    selects = "LOSSES = ('value_loss',)\n\n    def later"
    tree[loss] = tree[loss].replace("def value_loss_function", selects)
    every = list(boundaries(loads(FRAMEWORK, tree)))
    assert [b.stage for b in every if isinstance(b, Unbound)] == ["value-loss"]
    assert len(every) == len(POLICY) - 1 + 2  # without a user's rejection, which the specimen does not accept


def test_options_of_later_revisions_are_left_out(loads: Loads) -> None:
    """A revision whose source never reads the option of a loss has no such loss."""
    tree = files(fixed=True)
    loss = "slime/backends/megatron_utils/loss.py"
    for word in ("value_loss", "use_opsm", '"gspo"', "eps_clip_c"):
        tree[loss] = tree[loss].replace(word, "later")
    every = list(boundaries(loads(FRAMEWORK, tree)))
    settings = {setting for b in every if isinstance(b, Boundary) for setting in b.settings}
    assert settings == {*POLICY, "sft"} - {"grpo, opsm", "gspo", "grpo, dual clip", "grpo, rejection"}
    assert not any(isinstance(b, Unbound) for b in every)


def test_no_step_at_all(loads: Loads) -> None:
    tree = files(fixed=True)
    loss = "slime/backends/megatron_utils/loss.py"
    tree[loss] = tree[loss].replace("def loss_function", "def later")
    assert [(b.path, b.stage) for b in boundaries(loads(FRAMEWORK, tree))] == [
        ("slime.backends.megatron_utils.loss.loss_function", "policy-loss")
    ]
