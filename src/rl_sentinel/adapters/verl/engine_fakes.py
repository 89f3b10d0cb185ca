"""verl's engines without real models and devices: the engine is verl's class, the model is a ``CausalModel``."""

import copy
from collections.abc import Callable, Mapping
from contextlib import redirect_stdout
from dataclasses import dataclass
from functools import cache
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from rl_sentinel.adapters.kit.causal_model import CausalModel, model_of, starts_of_positions, with_prompt_tokens
from rl_sentinel.adapters.kit.rank_threads import gather_from_ranks, rank_count, rank_number, run_on_ranks
from rl_sentinel.adapters.kit.replacement import bare_instance
from rl_sentinel.adapters.process_group import one_process_group
from rl_sentinel.adapters.verl.fakes import OneProcess

#: What verl's code sees as the group of the ranks that share sequences.
SEQUENCE_GROUP = "ranks that share sequences"


class _WithoutMeshes(OneProcess):
    """A mixin for verl's FSDP engine: one process, and no device meshes."""

    engine_config: Any

    def _init_device_mesh(self) -> None:
        size = self.engine_config.ulysses_sequence_parallel_size
        self.device_mesh = self.ulysses_device_mesh = None
        self.ulysses_sequence_parallel_size, self.use_ulysses_sp = size, size > 1
        self.ulysses_parallel_group = SEQUENCE_GROUP


@cache
def fsdp_class(kind: Any) -> Any:  # noqa: ANN401 - the target's class
    """A subclass of verl's FSDP engine without device meshes, whose data-parallel group is one process."""
    return type("Engine", (_WithoutMeshes, kind), {})


def fsdp_engine(kind: Any, config: Any, use_remove_padding: bool) -> Any:  # noqa: ANN401, FBT001 - objects of the target
    """An engine for a configuration of verl, in float32 instead of mixed precision."""
    one_process_group()
    about = {"lora_rank": 0, "hf_config": SimpleNamespace()}
    model_config = SimpleNamespace(use_remove_padding=use_remove_padding, **about)
    engine = fsdp_class(kind)(model_config, config, None, None)
    engine._autocast_dtype = torch.float32  # noqa: SLF001 - set where verl builds the model
    return engine


class HuggingFaceFake:
    """The interface of transformers' causal models, with attention over the ranks that share a sequence."""

    def __init__(self, model: CausalModel) -> None:
        """Wrap the model."""
        self.model, self.config = model, SimpleNamespace()

    def __call__(
        self, input_ids: Tensor, attention_mask: Tensor | None, position_ids: Tensor, **_about: object
    ) -> SimpleNamespace:
        """Logits (or values) of packed sequences, which have no attention mask, or of padded ones."""
        if attention_mask is not None:
            return SimpleNamespace(logits=self.model.padded(input_ids, position_ids, attention_mask))
        ids, places = (torch.cat(gather_from_ranks(part[0])) for part in (input_ids, position_ids))
        answers = self.model.packed(ids, places, starts_of_positions(places))
        own = input_ids.shape[1]
        return SimpleNamespace(logits=answers[rank_number() * own :][:own].unsqueeze(0))


class Hidden(SimpleNamespace):
    """The output of a model's body, whose first entry is the last hidden states."""

    states: Tensor
    past_key_values = hidden_states = attentions = None

    def __getitem__(self, number: int) -> Tensor:
        """Entry 0, the last hidden states: ``[1, N, H]`` for packed sequences, ``[B, S, H]`` for padded ones."""
        return (self.states,)[number]


class FusedModel:
    """A model whose ``forward`` the target replaces by a forward pass that computes log-probs from hidden states.

    The hidden states are the logits, and the head is the identity.
    """

    def __init__(self, model: HuggingFaceFake) -> None:
        """Wrap the fake model that returns logits."""
        self.body, self.config = model, SimpleNamespace(model_type="", output_attentions=False)
        self.config.output_hidden_states = False
        self.lm_head = SimpleNamespace(weight=torch.eye(model.model.answers[0].shape[-1]))

    def model(self, input_ids: Tensor, attention_mask: Tensor | None, position_ids: Tensor, **_about: object) -> Hidden:
        """The hidden states of all tokens."""
        return Hidden(states=self.body(input_ids, attention_mask, position_ids).logits)

    def forward(self, **_arguments: object) -> Any:  # noqa: ANN401 - the output of the target
        """Fail, because the target must replace this forward pass.

        Raises:
            TypeError: always: the target did not choose a forward pass.
        """
        message = "forward of the fake model is unchanged, expected the target to replace it by a fused pass"
        raise TypeError(message)

    def __call__(self, **arguments: Any) -> Any:  # noqa: ANN401 - arguments and output of the target
        """Run the forward pass that the target chose."""
        return self.forward(**arguments)


@dataclass
class FusedForward:
    """Gives a model the forward pass that the target chooses for fused kernels."""

    choose: Callable[..., None]
    backend: str

    def __call__(self, model: CausalModel) -> FusedModel:
        """Wrap a model, and let the target replace its ``forward`` as it does for fused kernels."""
        kind = type("FusedModel", (FusedModel,), {})  # the target writes to the class
        made: FusedModel = kind(HuggingFaceFake(model))
        with redirect_stdout(None):
            self.choose(made, use_fused_kernels=True, fused_kernels_backend=self.backend)
        return made


class PolicyOutput(SimpleNamespace):
    """A fake of the target's output class, which is derived from a class of transformers."""


class SequenceRanks:
    """A fake ``torch.distributed`` for sequence parallelism; its ranks are the threads of ``run_on_ranks``."""

    ProcessGroup = object

    @staticmethod
    def get_world_size(group: object = None) -> int:  # noqa: ARG004 - there is one group
        """The number of ranks."""
        return rank_count()

    @staticmethod
    def get_rank(group: object = None) -> int:  # noqa: ARG004 - there is one group
        """The current rank."""
        return rank_number()

    @staticmethod
    def all_gather_into_tensor(output: Tensor, own: Tensor, **_about: object) -> None:
        """Write the tensors of all ranks into ``output``, in rank order."""
        output.copy_(torch.cat(gather_from_ranks(own)))

    @staticmethod
    def all_gather(outputs: list[Tensor], own: Tensor, **_about: object) -> None:
        """Copy the tensor of each rank into ``outputs``, in rank order."""
        for place, value in zip(outputs, gather_from_ranks(own), strict=True):
            place.copy_(value)


class WorkerGroupFake:
    """A fake worker group: it runs the engine on the ranks that share sequences, and returns the result of rank 0."""

    def __init__(self, engine: Any, about: Mapping[str, Any], tensors: Any, ranks: int) -> None:  # noqa: ANN401 - of the target
        """Store defaults of the worker's configuration (``about``) and verl's TensorDict module (``tensors``)."""
        self.engine, self.about, self.tensors, self.ranks = engine, about, tensors, ranks

    def compute_log_prob(self, data: Any) -> Any:  # noqa: ANN401 - a TensorDict
        """Like the worker's ``infer_batch``: set missing fields of the data, run the engine, add metrics."""
        self.tensors.assign_non_tensor(data, **{k: v for k, v in self.about.items() if k not in data.keys()})  # noqa: SIM118 - a TensorDict
        outputs = run_on_ranks(self.ranks, lambda _rank: self.engine.infer_batch(copy.copy(data), loss_function=None))
        return self.tensors.get_tensordict(outputs[0]["model_output"], {"metrics": {"mfu": 0.0}})

    def infer_batch(self, data: Any) -> Any:  # noqa: ANN401 - a TensorDict
        """The future that the critic's worker group returns."""
        return SimpleNamespace(get=lambda: self.compute_log_prob(data))


def pass_of_trainer(  # noqa: PLR0913 - what the trainer, the engine and the model have
    method: Callable[..., Any],
    owner: type,
    config: Any,  # noqa: ANN401 - the trainer's configuration
    engine: Any,  # noqa: ANN401 - an engine of this module
    wrap: Callable[[CausalModel], Any],
    data: Any,  # noqa: ANN401 - a DataProto
    columns: Tensor,
    about: dict[str, Any],
    ranks: int = 1,
    estimate: Callable[..., Any] | None = None,
) -> Any:  # noqa: ANN401 - a DataProto
    """Call ``method`` of the trainer on a batch, with workers whose engine has a fake model.

    ``columns`` are the logits ``[B, T, V]`` or the values ``[B, T]`` that the model returns; ``wrap`` gives the model
    the interface that the engine expects. ``estimate``, if given, then gets the values, and must accept them.
    """
    batch = data.batch
    answers = with_prompt_tokens(columns) if columns.dim() > 2 else columns.unsqueeze(-1)
    engine.module = wrap(model_of(batch["input_ids"], batch["attention_mask"], batch["responses"].shape[1], answers))
    group = WorkerGroupFake(engine, about, method.__globals__["tu"], ranks)
    trainer = bare_instance(
        owner,
        config=config,
        actor_rollout_wg=group,
        critic_wg=group,
        use_legacy_worker_impl="disable",
    )
    result = method(trainer, data)
    found = (result[0] if isinstance(result, tuple) else result).batch
    if estimate:
        mask = batch["response_mask"]
        rewarded = {"values": found["values"], "response_mask": mask, "token_level_rewards": mask.float()}
        estimate(type(data).from_dict(rewarded), adv_estimator="gae", gamma=1.0, lam=1.0, config={})
    return found
