"""TRL's vLLM in the trainer's process with sleep mode: the weights that it samples with after it wakes up."""

import inspect
from collections.abc import Callable, Iterable, Iterator
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.containers import EachRow
from rl_sentinel.adapters.kit.forms import Ragged
from rl_sentinel.adapters.kit.replacement import bare_instance, nothing, replaced_globals
from rl_sentinel.adapters.kit.requirements import no_empty_response
from rl_sentinel.adapters.kit.row_codecs import RowTokens
from rl_sentinel.adapters.kit.scripted_sampling import vllm_completion
from rl_sentinel.adapters.kit.value_codecs import Constant, functions
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.trl.engine_weights import FAKES, WeightEngine, Weights, attributes_of, source_globals
from rl_sentinel.adapters.trl.inline_engine_fakes import VLLM_VERSION
from rl_sentinel.adapters.trl.sampling_engine_fakes import VLLM
from rl_sentinel.core.boundary import Boundary, Output, Unbound, one_call
from rl_sentinel.core.call import Function, Use
from rl_sentinel.core.claims import claims

_GENERATION = f"{VLLM}.VLLMGeneration"

#: The methods that sample, and the methods that transfer the weights before, unless the first method does it.
METHODS = {
    f"{_GENERATION}.generate": f"{_GENERATION}.sync_weights",
    "trl.experimental.online_dpo.online_dpo_trainer.OnlineDPOTrainer._generate_vllm_colocate": "",
}

_CLAIMS = claims(
    "grpo_config.py, online_dpo_config.py, vllm_enable_sleep_mode: the engine offloads its weights during the "
    "optimizer step; vLLM, docs/features/sleep_mode.md: level 2 discards the weights, and reload_weights loads those "
    "of the model's path",
    conserves=True,
)
_PRODUCED = (
    "grpo_trainer.py, _generate_single_turn, and online_dpo_trainer.py: the weights are transferred if the global step "
    "has changed; with tools, an evaluation or gradient accumulation, one step samples several times"
)


#: Attributes of the sampler that these requests leave unset.
_UNSET = (
    *("temperature", "top_p", "top_k", "min_p", "repetition_penalty", "max_completion_length", "logprobs"),
    *("structured_outputs_regex", "processing_class", "chat_template", "chat_template_kwargs", "tools", "rollout_func"),
    "generation_config",
)


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of two samplings in one step of training, in releases with sleep mode."""
    for path, transfer in METHODS.items():
        if target.has(path) and not target.fails(path) and "sleep(level=2)" in inspect.getsource(target.find(path)):
            yield from bindable(target, _boundary(path, transfer))


class SleepingEngine(WeightEngine):
    """A fake vLLM that sleeps; level 2 discards its weights, and no weights can be loaded while it sleeps."""

    def __init__(self, initial: dict[str, Tensor]) -> None:
        """Sleep; ``initial`` are the weights in the folder of the model."""
        super().__init__()
        self.initial, self.sleeps = initial, True
        self.sampled: list[dict[str, Tensor]] = []

    def sleep(self, level: int = 1) -> None:
        """Sleep."""
        self.sleeps = True
        if level > 1:
            self.loaded = {}

    def wake_up(self, tags: Iterable[str] = ("weights", "kv_cache")) -> None:
        """Wake up, if ``tags`` have the weights."""
        self.sleeps = self.sleeps and "weights" not in tags

    def load_weights(self, weights: Iterable[tuple[str, Tensor]]) -> None:
        """Take a copy of each weight, unless the engine sleeps."""
        if not self.sleeps:
            super().load_weights(weights)

    def collective_rpc(self, method: str, **_options: object) -> None:
        """Load the weights in the folder, if this is asked."""
        if method == "reload_weights":
            self.load_weights(self.initial.items())

    def generate(self, prompts: list[Any], *_passed: object, **_options: object) -> list[Any]:
        """Two completions of one token for each prompt; the weights that sample them are recorded."""
        self.sampled.append(dict(self.loaded))
        outputs = [vllm_completion([5], [-0.5])] * 2
        return [SimpleNamespace(prompt_token_ids=[3], outputs=outputs) for _ in prompts]


def sampled_twice(
    entry: Callable[..., Any],
    transfer: Callable[..., Any] | None,
    kind: Any,  # noqa: ANN401 - a class of the target
    rows: list[list[float]],
) -> dict[str, list[Tensor]]:
    """Sample twice after an optimizer step; return the weights of each sampling, by layer, NaN if they are absent.

    The policy has one layer per row.
    """
    layers = [torch.tensor(row) for row in rows]
    policy = Weights(layers, sharded=False)
    engine = SleepingEngine({name: weight - 1 for name, weight in policy.own.items()})
    attributes = attributes_of(policy, engine, "colocate")
    vars(attributes["args"]).update(vllm_enable_sleep_mode=True)
    self = bare_instance(
        kind,
        **{**attributes, "enable_sleep_mode": True},
        **dict.fromkeys(_UNSET),
        _llm_weights_sleeping=True,
        _last_loaded_step=0,
        generation_kwargs={},
        tensor_parallel_size=1,
    )
    module, known = source_globals(entry), {"prompts": ["w3"], "images": None, "num_generations": 1}
    request = {name: known[name] for name in inspect.signature(entry).parameters if name in known}
    # Modules have these names only if vLLM is installed.
    vllm = {"vllm": SimpleNamespace(__version__=VLLM_VERSION), "SamplingParams": SimpleNamespace}
    with patch.dict(module, vllm), replaced_globals(module, **FAKES, empty_cache=nothing):
        if transfer is not None:
            transfer(self)
        for _ in range(2):
            entry(self, **request)
    weights = [
        [own.get(name, torch.full_like(layer, torch.nan)) for name, layer in policy.own.items()]
        for own in engine.sampled
    ]
    return dict(zip(("first", "second"), weights, strict=True))


def _boundary(path: str, transfer: str) -> Boundary:
    return one_call(
        path=f"{transfer} -> {path}" if transfer else path,
        stage="batch",
        call=sampled_twice,
        name="sampled",
        arguments={
            **functions(entry=path, kind=path.rpartition(".")[0]),
            "transfer": Constant(Function(transfer) if transfer else None),
            "rows": EachRow(RowTokens("rollout_logprob")),
        },
        produced_by={"rows": _PRODUCED},
        outputs={
            f"weights of the {name} sampling": Output(
                "B T", "", "rollout_logprob", at=Use("sampled")[name], form=Ragged()
            )
            for name in ("first", "second")
        },
        settings={"colocate, sleep mode": {}},
        claims=_CLAIMS,
        reach="use_vllm=True, vllm_mode=colocate, vllm_enable_sleep_mode=True",
        requires=(no_empty_response,),
    )
