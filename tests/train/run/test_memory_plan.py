"""The memory that a recipe needs, beside what its model has and saves."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from rl_sentinel.core.errors import SentinelError
from rl_sentinel.train.model.character_tokenizer import VOCABULARY_SIZE
from rl_sentinel.train.model.policy import Policy, build_models, init_policy
from rl_sentinel.train.model.prefill import response_states
from rl_sentinel.train.model.readout import unchanged
from rl_sentinel.train.run.distributed import ALONE
from rl_sentinel.train.run.memory_plan import FLOAT, PHASES, memory_size, plan_memory
from training import recipe

UPDATE: dict[str, Any] = {"prompts": 2, "rate": 1e-3}


def test_weights_gradients_and_optimizer_are_those_of_the_model() -> None:
    wanted = recipe(kl={"loss": 0.1})
    count = sum(p.numel() for p in init_policy(wanted).model.parameters())
    needs = plan_memory(wanted).needs
    assert needs["weights"] == needs["gradients"] == needs["reference"] == FLOAT * count
    assert needs["optimizer"] == 2 * FLOAT * count
    assert needs["roll-back copy"] == 3 * FLOAT * count
    shared = plan_memory(wanted, processes=2).needs
    assert shared["weights"] == FLOAT * count // 2
    assert shared["reference"] == FLOAT * count // 2
    assert shared["sampler"] == FLOAT * count
    assert "critic" not in needs


@pytest.mark.on_cpu
def test_processes_share_the_memory_of_a_cpu() -> None:
    assert plan_memory(recipe(), processes=4).available == plan_memory(recipe()).available // 4


def test_lora_trains_its_matrices_alone() -> None:
    """Of rank 2 beside two projections of 16 to 16: 2 x 2 x (16 + 16) weights in one layer."""
    lora: dict[str, Any] = {"rank": 2, "targets": ("q_proj", "v_proj")}
    needs, full = plan_memory(recipe(policy={"lora": lora})).needs, plan_memory(recipe()).needs
    assert needs["gradients"] == FLOAT * 128
    assert needs["weights"] == full["weights"] + FLOAT * 128
    head = plan_memory(recipe(policy={"lora": lora | {"whole": ("lm_head",)}})).needs
    assert head["gradients"] == FLOAT * (128 + 16 * VOCABULARY_SIZE)


def test_kv_cache_has_keys_and_values_of_all_rows() -> None:
    wanted = recipe()
    rows, positions = wanted.rollout.prompts * wanted.rollout.responses, 1 + wanted.rollout.tokens
    expected = 2 * FLOAT * wanted.policy.layers * wanted.policy.hidden * rows * positions
    assert plan_memory(wanted).needs["KV cache"] == expected
    assert plan_memory(recipe(policy={"precision": "bf16"})).needs["KV cache"] == expected // 2


@pytest.mark.on_cpu
def test_sampling_the_gradient_and_the_optimizer_take_turns() -> None:
    plan = plan_memory(recipe())
    sampling = plan.needs["KV cache"] + plan.needs["distributions of the sampler"]
    gradient = plan.needs["activations"] + plan.needs["logits of a block"]
    assert plan.total == sum(plan.needs.values()) - min(sampling, gradient)
    roots = 2 * gradient
    on_gpu = replace(plan, needs=plan.needs | {"roots of second moments": roots})
    assert on_gpu.total == plan.total - max(sampling, gradient) + roots


def test_activations_grow_with_rows_and_shrink_with_the_settings_that_save_memory() -> None:
    wide = plan_memory(recipe(update={**UPDATE, "rows": 8})).needs["activations"]
    small = plan_memory(recipe(update={**UPDATE, "rows": 4})).needs["activations"]
    assert 0.45 < small / wide < 0.6
    budget = plan_memory(recipe(update={**UPDATE, "rows": 8, "tokens": 16})).needs["activations"]
    assert budget == small
    deep: dict[str, Any] = {"layers": 12, "hidden": 32, "inner": 128}
    kept = plan_memory(recipe(policy=deep)).needs["activations"]
    assert plan_memory(recipe(policy={**deep, "recompute": True})).needs["activations"] < kept / 3


SIZES: dict[str, Any] = {"layers": 3, "hidden": 32, "inner": 64}
EIGHT_ROWS: dict[str, Any] = {
    "update": {"prompts": 4, "rate": 1e-3},
    "rollout": {"prompts": 4, "responses": 2},
}


def _kept(policy: Policy, forward: Callable[[], torch.Tensor]) -> int:
    """The bytes that a pass of a real model keeps for its gradient, and returns, by the memory of its storages."""
    seen, held = dict[int, int](), list[torch.Tensor]()
    weights = {p.data_ptr() for p in policy.model.parameters()}

    def keep(x: torch.Tensor) -> torch.Tensor:
        held.append(x)
        if x.untyped_storage().data_ptr() not in weights:
            seen[x.untyped_storage().data_ptr()] = x.untyped_storage().nbytes()
        return x

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda x: x):
        states = forward()
    return sum(seen.values()) + states.nbytes


@pytest.mark.on_cpu
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_activations_are_what_a_forward_pass_keeps(precision: str) -> None:
    """Of four prompts with two responses each."""
    wanted = recipe(policy=SIZES | {"precision": precision}, **EIGHT_ROWS)
    policy, response = init_policy(wanted), torch.zeros(8, wanted.rollout.tokens, dtype=torch.long)
    kept = _kept(policy, lambda: response_states(policy, [(n % 4,) for n in range(8)], response))
    assert plan_memory(wanted).needs["activations"] == pytest.approx(kept, rel=0.15)


@pytest.mark.on_cpu
def test_layers_that_are_computed_again_keep_their_inputs_and_one_layer() -> None:
    wanted = recipe(policy=SIZES | {"recompute": True}, **EIGHT_ROWS)
    whole, again = init_policy(wanted), build_models(init_policy(wanted), wanted, ALONE).policy
    token = torch.zeros(8, 1 + wanted.rollout.tokens, dtype=torch.long)
    inputs = _kept(again, lambda: again(token, of=unchanged))
    layers = _kept(whole, lambda: whole(token, of=unchanged))
    assert plan_memory(wanted).needs["activations"] == pytest.approx(inputs + layers / 3, rel=0.15)


@pytest.mark.on_cpu
def test_a_recipe_that_cannot_fit_is_one_line(tmp_path: Path) -> None:
    needed = replace(plan_memory(recipe(tmp_path)), available=10_000)
    with pytest.raises(
        SentinelError, match=r"^the recipe needs .* on cpu, which has 0\.0 MiB: train with \[policy\.lora\]"
    ):
        needed.require_room()
    for largest, fix in (("KV cache", "lower rollout"), ("activations", "lower update"), ("roots of second", "train")):
        name = next(name for phase in PHASES for name in phase if name.startswith(largest))
        with pytest.raises(SentinelError, match=rf"which has 0\.5 MiB: {fix}"):
            replace(needed, needs={"weights": 2**18, name: 2**20}, available=2**19).require_room()
    plan_memory(recipe(tmp_path)).require_room()


def test_sizes_have_units() -> None:
    assert [memory_size(n) for n in (0, 2**19, 5 * 2**30)] == ["0.0 MiB", "0.5 MiB", "5.00 GiB"]
