"""What AReaL's actor is given and how its answer is read, on a double of it that hands back what it was told."""

from collections.abc import Callable

import pytest
import torch

from adapters.areal_specimen import CONFIG
from rl_sentinel.adapters.areal import FRAMEWORK
from rl_sentinel.adapters.areal.advantages import CONFIG as CONFIGURATION
from rl_sentinel.adapters.areal.advantages import FAMILIES, PATH, boundaries, knob, norm
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.batch import Batch, batch_of
from rl_sentinel.core.boundary import Boundary, Unbound
from rl_sentinel.core.errors import NotApplicable

Loads = Callable[..., Target]

#: Advantages are the reference's log-probs where they stand, returns the critic's values; the reference is written to.
ACTOR = """
    import torch

    class PPOActor:
        def __init__(self, config, engine):
            self.config = config

        def _compute_advantages(self, data):
            data["advantages"] = data["ref_logp"].clone()
            data["returns"] = data.get("values", torch.zeros_like(data["ref_logp"]))
            data["kl_rewards"] = data["logprobs"].roll(-1, 1) * self.config.discount
            data["ref_logp"] *= 0
            return data
"""


def _files(*, actor: str = ACTOR, config: str = CONFIG) -> dict[str, str]:
    return {
        "areal/__init__.py": "",
        "areal/api/cli_args.py": config,
        "areal/trainer/ppo/actor.py": actor,
    }


def _batch(**more: torch.Tensor) -> Batch:
    """Prompts of one and of three tokens, responses of two and of one."""
    told = {
        "prompt_length": torch.tensor([1, 3]),
        "length": torch.tensor([2, 1]),
        "ref_logprob": torch.tensor([[-1.0, -2.0], [-3.0, 0.0]]),
        "old_logprob": torch.tensor([[-4.0, -5.0], [-6.0, 0.0]]),
        "value": torch.tensor([[0.5, 0.25], [0.75, 0.0]]),
    }
    return batch_of(torch.tensor([[True, True], [True, False]]), **(told | more))


def _bound(target: Target) -> dict[str, Boundary]:
    found = list(boundaries(target))
    assert not [b for b in found if isinstance(b, Unbound)]
    return {setting: b for b in found if isinstance(b, Boundary) for setting in b.settings}


def test_each_token_comes_back_at_its_place(loads: Loads) -> None:
    """Behind prompts of any length; the actor's own passes one place earlier than the sampler's log-probs."""
    boundary, batch = _bound(loads(FRAMEWORK, _files()))["critic"], _batch()
    found = boundary.call(batch, boundary.settings["critic"])
    assert torch.equal(found["advantage"], batch.ref_logprob)
    assert torch.equal(found["returns"], batch.value)
    assert torch.equal(found["kl_reward"], batch.old_logprob * torch.tensor(0.9))


def test_what_the_call_wrote_is_seen_and_the_batch_stays(loads: Loads) -> None:
    """The reference's column is told as the call left it."""
    boundary, batch = _bound(loads(FRAMEWORK, _files()))["default"], _batch()
    found = boundary.call(batch, boundary.settings["default"])
    assert found["after/ref_logprob"].tolist() == [[0.0, 0.0], [0.0, 0.0]]
    assert batch.ref_logprob.tolist() == [[-1.0, -2.0], [-3.0, 0.0]]
    assert not found["returns"].any()  # nobody gave a critic's values


def test_reads_are_those_of_the_setting(loads: Loads) -> None:
    """Groups where a statistic is theirs, values where a critic is, ends where they suppress."""
    found = _bound(loads(FRAMEWORK, _files()))
    assert set(found) == set(FAMILIES)
    for name, boundary in found.items():
        assert ("group" in boundary.reads) == ("group" in name), name
        assert ("value" in boundary.reads) == (name == "critic"), name
        assert ("scored" in boundary.reads) == name.startswith("no EOS"), name
        assert (boundary.claims.suppresses is not None) == name.startswith("no EOS"), name


def test_settings_in_the_words_of_the_configuration() -> None:
    """A level of a statistic belongs to its normalisation."""
    assert knob("kl_ctl", 0.0) == "actor.kl_ctl=0.0"
    assert knob("reward mean", "group") == "actor.reward_norm.mean_level=group"
    assert knob("adv std", None) == "actor.adv_norm.std_level=None"
    assert knob("reward leave1out", value=True) == "actor.reward_norm.mean_leave1out=True"


def test_a_normalisation_knows_the_size_of_groups(loads: Loads) -> None:
    """Only where a level is the group's; the class is the target's own, and leaves none out unasked."""
    target, batch = loads(FRAMEWORK, _files()), _batch(group=torch.tensor([4, 4]))
    by_group = norm(target, batch, {"reward mean": "group", "reward std": None, "reward leave1out": True}, "reward")
    assert (by_group.mean_level, by_group.std_level, by_group.mean_leave1out) == ("group", None, True)
    assert by_group.group_size == 2
    of_all = norm(target, batch, {"adv mean": "batch", "adv std": "batch"}, "adv")
    assert (of_all.group_size, of_all.mean_leave1out) == (1, False)


def test_groups_that_it_cannot_be_given_are_not_judged(loads: Loads) -> None:
    """Interleaved rows under a statistic of groups; without one they are asked all the same."""
    found, batch = _bound(loads(FRAMEWORK, _files())), _batch()
    apart = batch_of(torch.ones(4, 1).bool(), group=torch.tensor([0, 1, 0, 1]))
    with pytest.raises(NotApplicable, match="groups by position"):
        found["group reward"].call(apart, found["group reward"].settings["group reward"])
    assert found["default"].call(batch, {})["advantage"].any()


@pytest.mark.parametrize("lacking", ["actor", "config"])
def test_one_that_is_missing_is_told_once(loads: Loads, lacking: str) -> None:
    """Not once for each setting; the reason names what is not there."""
    empty = {"actor": _files(actor=""), "config": _files(config="")}[lacking]
    (found,) = boundaries(loads(FRAMEWORK, empty))
    assert isinstance(found, Unbound)
    assert (found.path, found.stage) == (PATH, "advantage")
    assert {"actor": "PPOActor", "config": CONFIGURATION.rpartition(".")[2]}[lacking] in found.reason
