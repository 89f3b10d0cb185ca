"""The device memory that a recipe needs, computed before any weight is loaded."""

import os
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode

from rl_sentinel.core.errors import SentinelError
from rl_sentinel.signal.kernels import sizes
from rl_sentinel.train.config.recipe import Recipe
from rl_sentinel.train.config.selection import select_components
from rl_sentinel.train.config.settings import LoraSettings
from rl_sentinel.train.model.character_tokenizer import VOCABULARY_SIZE, CharacterTokenizer
from rl_sentinel.train.model.device import CPU, resolve_device
from rl_sentinel.train.model.llama import Llama, Shape
from rl_sentinel.train.model.policy import Policy, Tokenizer
from rl_sentinel.train.model.prefill import response_states
from rl_sentinel.train.model.pretrained import init_pretrained
from rl_sentinel.train.model.readout import unchanged
from rl_sentinel.train.rollout.chat import apply_chat
from rl_sentinel.train.rollout.episodes import UniformDraws, start_episodes
from rl_sentinel.train.rollout.interfaces import Environment
from rl_sentinel.train.run.trained_policy import is_run, read_run_recipe
from rl_sentinel.train.update.optimizer_step import MAX_BACKUP_BYTES

#: Bytes of a number in float32, in which weights, gradients and the optimizer are.
FLOAT = 4

#: What is needed only in one phase: while responses are sampled, for the gradient, and in the optimizer's step.
PHASES = (
    ("KV cache", "distributions of the sampler"),
    ("activations", "logits of a block"),
    ("roots of second moments",),
)

_LORA = "train with [policy.lora]"

#: What lowers the need of each phase.
_FIXES = (
    "lower rollout.tokens or rollout.prompts",
    "lower update.rows or update.tokens, set policy.recompute=true",
    _LORA,
)

#: Rows that the engine of this process decodes at a time.
DECODED = 256

#: Bytes per token of the vocabulary and row to draw a token: logits and log-probs, and two sums in float64.
DRAWN = 2 * FLOAT + 2 * 8

#: Steps whose prompts are read for the longest one.
SEEN_STEPS = 4


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """Bytes by purpose for each process, and its device's memory; on a CPU, its share of the machine's memory.

    ``lora`` is True if the recipe has LoRA.
    """

    needs: dict[str, int]
    device: str
    available: int
    processes: int
    lora: bool = False

    @property
    def total(self) -> int:
        """The bytes that are needed at one time: what stays, and the largest of the phases."""
        return self._stays + max(map(self._size_of, PHASES))

    @property
    def _stays(self) -> int:
        return sum(size for name, size in self.needs.items() if not any(name in phase for phase in PHASES))

    def _size_of(self, phase: tuple[str, ...]) -> int:
        return sum(self.needs.get(name, 0) for name in phase)

    def require_room(self) -> None:
        """Check that the device has enough memory.

        Raises:
            SentinelError: if it does not.
        """
        if self.total > self.available:
            has, fix = memory_size(self.available), _FIXES[PHASES.index(max(PHASES, key=self._size_of))]
            fix = _LORA if self._stays > self.available else fix
            fixes = "choose a smaller policy" if fix == _LORA and self.lora else f"{fix}, or choose a smaller policy"
            raise SentinelError(
                f"the recipe needs {memory_size(self.total)} on {self.device}, which has {has}: {fixes}"
            )


def memory_size(size: int) -> str:
    """A number of bytes in MiB or GiB.

    Example:
        >>> from rl_sentinel.train.run.memory_plan import memory_size
        >>> memory_size(3 * 2**29), memory_size(2**20)
        ('1.50 GiB', '1.0 MiB')
    """
    return f"{size / 2**30:.2f} GiB" if size >= 2**30 else f"{size / 2**20:.1f} MiB"


def plan_memory(recipe: Recipe, *, processes: int = 1) -> MemoryPlan:
    """Compute the memory that each process of a recipe needs.

    Weights, gradients and the optimizer are counted exactly. Activations are the tensors that one forward pass of the
    largest part of a mini-batch saves for its gradient. This part has the longest prompt of the first steps, the
    longest response, and as many different prompts as possible. If layers are computed again, the activations of one
    layer are added. With LoRA, the activations of full training are counted. Not counted: torch itself, fragmentation,
    and the critic's activations.

    Args:
        recipe: the recipe.
        processes: how many processes share the policy (FSDP).

    Raises:
        SentinelError: if the recipe is wrong, or its model cannot be read.
    """
    environment, rollout = select_components(recipe).environment, recipe.rollout
    with FakeTensorMode():  # tensors that have shapes and no memory
        policy, shape = _policy_without_memory(recipe)
        model, lora = policy.model, recipe.policy.lora
        before, low_rank = sum(p.numel() for p in model.parameters()), _low_rank_weights(model, lora)
        trained = before if lora is None else low_rank + _whole_weights(model, lora)
        prompt = _longest_prompt(recipe, environment, policy.tokenizer)
        activations = _saved_bytes(policy, recipe, prompt=prompt, processes=processes)
        vocabulary = _vocabulary(model)
    backup = 3 * FLOAT * trained // processes  # of weights and moments, before each optimizer step
    reference = FLOAT * (before + low_rank) // processes if recipe.kl is not None else 0
    sampler = FLOAT * (before + low_rank) if processes > 1 or rollout.staleness else 0
    decoded = min(DECODED, -(-rollout.prompts * rollout.responses // processes)) if rollout.engine == "process" else 0
    cached = decoded * (prompt + rollout.tokens * rollout.turns) * shape.layers * shape.keys
    device = resolve_device(recipe.policy.device)
    # From a GPU, the copy goes to host memory.
    copies_checkpoint = recipe.checkpoint.background and device.type == "cpu"
    needs = {
        "weights": FLOAT * (before + low_rank) // processes,
        "gradients": FLOAT * trained // processes,
        "optimizer": 2 * FLOAT * trained // processes,
        "roll-back copy": backup if backup <= MAX_BACKUP_BYTES else 0,
        "checkpoint copy": FLOAT * (before + low_rank + 2 * trained) // processes if copies_checkpoint else 0,
        "reference": reference,
        "sampler": sampler,
        "critic": 4 * FLOAT * before if recipe.critic is not None else 0,
        "activations": activations,
        "logits of a block": _block_bytes(vocabulary, device),
        "KV cache": 2 * _number_bytes(recipe) * cached,
        "distributions of the sampler": DRAWN * decoded * vocabulary,
        # On a GPU, Adam takes them of all weights at once.
        "roots of second moments": FLOAT * trained // processes if device.type == "cuda" else 0,
    }
    available = _available(device) // (processes if device.type == "cpu" else 1)  # processes share a CPU's memory
    return MemoryPlan({k: v for k, v in needs.items() if v}, str(device), available, processes, lora is not None)


@dataclass(frozen=True, slots=True)
class _CacheShape:
    """The number of layers, and the number of keys (or values) that each layer keeps for a token."""

    layers: int
    keys: int


def _low_rank_weights(model: nn.Module, settings: LoraSettings | None) -> int:
    """The number of weights that LoRA adds and trains; 0 without LoRA."""
    if settings is None:
        return 0
    targets = [m for n, m in model.named_modules() if isinstance(m, nn.Linear) and n.split(".")[-1] in settings.targets]
    return sum(settings.rank * (m.in_features + m.out_features) for m in targets)


def _whole_weights(model: nn.Module, settings: LoraSettings) -> int:
    """The number of the model's own weights that train together with LoRA."""
    return sum(p.numel() for n, p in model.named_parameters() if n.split(".")[-2] in settings.whole)


def _policy_without_memory(recipe: Recipe) -> tuple[Policy, _CacheShape]:
    """The policy of a recipe, made of fake tensors, and the shape of its KV cache."""
    settings = recipe.policy
    if is_run(settings.load):
        policy, cache = _policy_without_memory(read_run_recipe(settings.load))
        policy.precision = settings.precision
        return policy, cache
    if settings.load:
        policy, config = init_pretrained(settings.load, precision=settings.precision)
        heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
        size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        return policy, _CacheShape(config.num_hidden_layers, heads * size)
    names = ("hidden", "layers", "heads", "inner", "positions")
    model = Llama(Shape(vocabulary=VOCABULARY_SIZE, **{name: getattr(settings, name) for name in names}))
    policy = Policy(model, CharacterTokenizer(settings.positions), precision=settings.precision)
    return policy, _CacheShape(settings.layers, settings.hidden)


def _longest_prompt(recipe: Recipe, environment: Environment, tokenizer: Tokenizer) -> int:
    """The longest prompt of the first steps, in tokens."""
    rollout, played, lengths = recipe.rollout, apply_chat(environment, recipe.chat, tokenizer), list[int]()
    for step in range(SEEN_STEPS):
        draws = UniformDraws(recipe.seed, step, rollout.prompts, rollout.tokens)
        episodes = start_episodes(played, tokenizer, draws, prompts=rollout.prompts, responses=1)
        lengths += [len(episode.context) for episode in episodes]
    return max(lengths)


def _saved_bytes(policy: Policy, recipe: Recipe, *, prompt: int, processes: int) -> int:
    """Bytes that a forward pass of the largest part saves for the gradient, without weights."""
    rollout, update = recipe.rollout, recipe.update
    response = rollout.tokens * rollout.turns
    rows = min(update.rows, -(-update.prompts * rollout.responses // processes))
    if update.tokens is not None:
        rows = max(1, min(rows, update.tokens // (prompt + response)))
    sequence = torch.zeros(rows, prompt + response, dtype=torch.long, device=CPU)
    number = _number_bytes(recipe)
    if recipe.policy.recompute:  # the inputs of layers, and the activations of the layer that is computed again
        layer = _saved_by(policy.model, lambda: policy(sequence, of=unchanged), number) // len(policy.model.layers)  # type: ignore[arg-type]  # modules are untyped
        policy.model.enable_recompute()  # type: ignore[operator]  # as above
        return layer + _saved_by(policy.model, lambda: policy(sequence, of=unchanged), number)
    if processes > 1:  # whole sequences, as in `build_models`
        return _saved_by(policy.model, lambda: policy(sequence, of=unchanged), number)
    prompts = [(row % update.prompts, *[0] * (prompt - 1)) for row in range(rows)]
    return _saved_by(policy.model, lambda: response_states(policy, prompts, sequence[:, :response]), number)


def _number_bytes(recipe: Recipe) -> int:
    """Bytes of a number that the model computes."""
    return FLOAT if recipe.policy.precision == "fp32" else FLOAT // 2


def _saved_by(model: nn.Module, forward: Callable[[], Tensor], number: int) -> int:
    """Bytes that autograd keeps for the gradient of a forward pass, without weights, plus the bytes of the result."""
    weights, saved, storages = [p.untyped_storage() for p in model.parameters()], dict[int, int](), list[object]()
    weight_ids = {storage._cdata for storage in weights}  # noqa: SLF001 - the identity of a storage has no public name

    def pack(x: Tensor) -> Tensor:
        storage = x.untyped_storage()
        storages.append(storage)  # an identity is unique only while its storage lives
        if storage._cdata not in weight_ids:  # noqa: SLF001 - as above
            saved[storage._cdata] = storage.nbytes()  # noqa: SLF001 - as above
        return x

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
        states = forward()
    return sum(saved.values()) + number * states.numel()


def _vocabulary(model: nn.Module) -> int:
    """The size of the vocabulary, by the head's weight; 0 if the model has no such weight."""
    head = getattr(model, "head", None)
    return len(head) if isinstance(head, Tensor) else 0


def _block_bytes(vocabulary: int, device: torch.device) -> int:
    """The bytes of the logits that are computed at a time, and of their gradient."""
    most = sizes.LOGITS_CPU if device.type == "cpu" else sizes.LOGITS_DEVICE
    return 2 * FLOAT * min(most, sizes.PROJECTED_ROWS * vocabulary)


def _available(device: torch.device) -> int:
    """The memory of the device, in bytes."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[1])
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
