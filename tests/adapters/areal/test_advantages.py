"""What AReaL's actor is passed and where its results are read, on a fake that returns its arguments."""

import pytest
import torch

from adapters.areal_specimen import CONFIG
from adapters.checks import Loads, by_setting, outputs_of
from rl_sentinel.adapters.areal import FRAMEWORK
from rl_sentinel.adapters.areal.advantages import BY_PROMPT, FAMILIES, PATH, boundaries
from rl_sentinel.adapters.areal.arguments import CONFIG as CONFIGURATION
from rl_sentinel.adapters.kit.execution import columns_after, execute, inputs_of
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.batch import Batch, batch_of
from rl_sentinel.core.boundary import Boundary, Unbound
from rl_sentinel.core.case import Case
from rl_sentinel.core.errors import NotApplicable

#: Advantages are the reference's log-probs where they stand, returns the critic's values; the reference is overwritten.
ACTOR = """
    import torch

    class PPOActor:
        def __init__(self, config, engine):
            self.config = config

        def _compute_advantages(self, data):
            reference = data.get("ref_logp", data["logprobs"] * 0)
            data["advantages"] = reference.clone()
            data["returns"] = data.get("values", torch.zeros_like(reference))
            data["kl_rewards"] = data["logprobs"].roll(-1, 1) * self.config.discount
            reference *= 0
            return data
"""


#: Also the trainer's call, as AReaL makes it: prompts are joined, and their rows cut apart again.
BY_ITEM = """
        def compute_advantages(self, data):
            for prompt in data:
                self._compute_advantages(prompt)
            return data
"""


def _files(*, actor: str = ACTOR, config: str = CONFIG) -> dict[str, str]:
    return {
        "areal/__init__.py": "",
        "areal/api/cli_args.py": config,
        "areal/trainer/ppo/actor.py": actor,
        "areal/trainer/ppo/critic.py": "class PPOCritic: ...",
    }


def _batch(**more: torch.Tensor) -> Batch:
    """Prompts of one and of three tokens, responses of two and of one."""
    columns = {
        "prompt_length": torch.tensor([1, 3]),
        "length": torch.tensor([2, 1]),
        "ref_logprob": torch.tensor([[-1.0, -2.0], [-3.0, 0.0]]),
        "old_logprob": torch.tensor([[-4.0, -5.0], [-6.0, 0.0]]),
        "value": torch.tensor([[0.5, 0.25], [0.75, 0.0]]),
    }
    return batch_of(torch.tensor([[True, True], [True, False]]), **(columns | more))


def _bound(target: Target) -> dict[str, Boundary]:
    every = list(boundaries(target))
    assert not [b for b in every if isinstance(b, Unbound)]
    return by_setting(every)


def test_each_token_comes_back_at_its_place(loads: Loads) -> None:
    """Behind prompts of any length; forward passes stand one position earlier than the sampler's log-probs."""
    target, batch = loads(FRAMEWORK, _files()), _batch()
    outputs = outputs_of(target, _bound(target)["critic"], "critic", batch)
    assert torch.equal(outputs["advantage"], batch.ref_logprob)
    assert torch.equal(outputs["returns"], batch.value)
    assert torch.equal(outputs["kl_reward"], batch.old_logprob * torch.tensor(0.9))


def test_what_the_call_overwrote_is_read_and_the_batch_stays(loads: Loads) -> None:
    """The reference's column as the call left it."""
    target, batch = loads(FRAMEWORK, _files()), _batch()
    boundary = _bound(target)["default"]
    run = execute(target, boundary, inputs_of(boundary, Case(batch)))
    assert columns_after(run, batch)["ref_logprob"].tolist() == [[0.0, 0.0], [0.0, 0.0]]
    assert batch.ref_logprob.tolist() == [[-1.0, -2.0], [-3.0, 0.0]]
    assert not run.values["returns"].any()  # there is no critic


def test_reads_are_those_of_the_setting(loads: Loads) -> None:
    """Groups for a statistic of groups, values with a critic, ends where they suppress, a reference for a KL."""
    bound = _bound(loads(FRAMEWORK, _files()))
    assert set(bound) == set(FAMILIES)
    for name, boundary in bound.items():
        assert ("group" in boundary.reads) == ("group" in name or name.startswith("over")), name
        assert ("value" in boundary.reads) == (name == "critic"), name
        assert ("scored" in boundary.reads) == name.startswith("no EOS"), name
        assert ("ref_logprob" in boundary.reads) == (not name.startswith(("group", "over"))), name
        assert (boundary.claims.suppresses is not None) == name.startswith("no EOS"), name


def test_groups_that_stand_apart_are_not_applicable(loads: Loads) -> None:
    """Rows of a group must be contiguous for a statistic of groups, and for nothing else."""
    target, batch = loads(FRAMEWORK, _files()), _batch()
    bound = _bound(target)
    apart = batch_of(torch.ones(4, 1).bool(), group=torch.tensor([0, 1, 0, 1]))
    with pytest.raises(NotApplicable, match="groups by position"):
        outputs_of(target, bound["group reward"], "group reward", apart)
    assert outputs_of(target, bound["default"], "default", batch)["advantage"].any()


@pytest.mark.parametrize("axis", [0, 1])
def test_release_that_cannot_normalize_a_reward_alone(loads: Loads, axis: int) -> None:
    """It reads a second axis of the rewards of a prompt with one response."""
    source = f"class Normalization:\n    def __call__(self, x):\n        return x.shape[{axis}]"
    target = loads(FRAMEWORK, {**_files(), "areal/utils/data.py": source})
    bound, alone = _bound(target), batch_of(torch.ones(2, 1).bool(), group=torch.tensor([0, 1]))
    assert outputs_of(target, bound["default"], "default", _batch())["advantage"].any()
    if axis:
        with pytest.raises(NotApplicable, match="one response"):
            outputs_of(target, bound["group reward"], "group reward", alone)
    else:
        outputs_of(target, bound["group reward"], "group reward", alone)


def test_groups_of_different_sizes_are_called_by_prompt(loads: Loads) -> None:
    """Only the trainer's call says how many responses each prompt has."""
    target = loads(FRAMEWORK, _files(actor=ACTOR + BY_ITEM))
    every = [b for b in boundaries(target) if isinstance(b, Boundary)]
    joined, by_prompt = (
        next(b for b in every if b.path == path and "no EOS masked, group" in b.settings) for path in (PATH, BY_PROMPT)
    )
    lengths = {"length": torch.tensor([2, 1, 1]), "prompt_length": torch.ones(3, dtype=torch.int64)}
    uneven = batch_of(
        torch.tensor([[True, True], [True, False], [True, False]]),
        group=torch.tensor([0, 0, 1]),
        ref_logprob=torch.tensor([[-1.0, -2.0], [-3.0, 0.0], [-4.0, 0.0]]),
        **lengths,
    )
    with pytest.raises(NotApplicable, match="prompts have different numbers of responses"):
        outputs_of(target, joined, "no EOS masked, group", uneven)
    outputs = outputs_of(target, by_prompt, "no EOS masked, group", uneven)
    assert torch.equal(outputs["advantage"], uneven.ref_logprob)
    assert {b.path for b in every if "default" in b.settings} == {PATH}


@pytest.mark.parametrize("lacking", ["actor", "config"])
def test_what_is_missing_is_reported_once(loads: Loads, lacking: str) -> None:
    """Not once for each setting; the reason names what is absent."""
    empty = {"actor": _files(actor=""), "config": _files(config="")}[lacking]
    (unbound,) = boundaries(loads(FRAMEWORK, empty))
    assert isinstance(unbound, Unbound)
    assert (unbound.path, unbound.stage) == (PATH, "advantage")
    assert {"actor": "PPOActor", "config": CONFIGURATION.rpartition(".")[2]}[lacking] in unbound.reason


def test_releases_without_a_critic(loads: Loads) -> None:
    """No advantages read values there, for nothing computes them."""
    files = _files()
    del files["areal/trainer/ppo/critic.py"]
    assert set(FAMILIES) - set(_bound(loads(FRAMEWORK, files))) == {"critic"}


def test_turns_are_numbered_as_a_workflow_numbers_them(loads: Loads) -> None:
    """From 0 in each row, -1 where the model did not sample."""
    by_turn = ACTOR.replace("reference.clone()", "data['turn_ids'].roll(-1, 1).float()")
    config = CONFIG.replace("discount: float", 'gae_timestep_unit: str = "token"\n        discount: float')
    gae = {"areal/trainer/ppo/gae.py": "def _compute_turn_level_gae(): ..."}
    mask = torch.tensor([[True, True, False, True], [True, False, False, False]])
    turn = torch.tensor([[3, 3, 3, 5], [7, 7, 7, 7]])
    batch = batch_of(mask, turn=turn, prompt_length=torch.tensor([2, 1]), length=torch.tensor([4, 1]))
    target = loads(FRAMEWORK, _files(actor=by_turn, config=config) | gae)
    outputs = outputs_of(target, _bound(target)["turns as steps"], "turns as steps", batch)
    assert outputs["advantage"].tolist() == [[0, 0, -1, 1], [0, 0, 0, 0]]
