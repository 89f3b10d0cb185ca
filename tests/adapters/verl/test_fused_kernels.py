"""verl's fused kernels, alone and through the engine's pass, on specimens in words of our own."""

import pytest

from adapters.checks import Loads, check_verdict, rewritten
from adapters.kit.round_trip import check_calls
from adapters.verl.omegaconf_specimen import OMEGACONF
from adapters.verl.test_engine_passes import engine_tree
from adapters.verl_specimen import files
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.verl import FRAMEWORK, engine_passes, logit_functions
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.laws.differs_from_reference import LAW as REF001

KERNEL = """
    import torch

    class Chunks(torch.autograd.Function):
        @staticmethod
        def forward(ctx, states, head, labels, temperature, size):
            ctx.shape, ctx.wanted = labels.shape, states.requires_grad
            states, labels = states.flatten(0, 1), labels.flatten()
            ctx.save_for_backward(states, head, labels)
            ctx.temperature, ctx.size = temperature, size
            answers = [one(*parts, temperature) for parts in cut(states, head, labels, size)]
            return tuple(torch.cat(x) for x in zip(*answers))

        @staticmethod
        def backward(ctx, of_log_probs, of_entropy):
            states, head, labels = ctx.saved_tensors
            slopes, of_head = [], torch.zeros_like(head)
            wanted = WANTED
            for n, parts in enumerate(cut(states, head, labels, ctx.size)):
                with torch.enable_grad():
                    own, weight = (x.detach().requires_grad_() for x in parts[:2])
                    sums = one(own, weight, parts[2], ctx.temperature)
                rows = slice(n * ctx.size, n * ctx.size + len(own))
                slope, more = torch.autograd.grad(sums, (own, weight), (of_log_probs[rows], SIGN * of_entropy[rows]))
                slopes.append(slope)
                of_head = ADDED
            return torch.cat(slopes).view(*ctx.shape, -1) if wanted else None, of_head, None, None, None

    def cut(states, head, labels, size):
        for start in range(0, len(states), size):
            yield states[start : start + size], head, labels[LABELS : LABELS + size]

    def one(states, head, labels, temperature):
        log_probs = (states @ head.t() / temperature).log_softmax(-1)
        return log_probs.gather(1, labels[:, None])[:, 0], -(log_probs.exp() * log_probs).sum(1)

    class FusedLinearForPPO:
        def __init__(self, chunk_size=512):
            self.size = chunk_size

        def forward(self, hidden_states, vocab_weights, input_ids, temperature=1.0):
            shape = input_ids.shape
            answers = Chunks.apply(hidden_states, vocab_weights, input_ids, temperature, self.size)
            return tuple(x.view(shape) for x in answers)
"""

SOUND = {"SIGN": "1", "ADDED": "of_head + more", "LABELS": "start", "WANTED": "ctx.wanted"}


def _kernels(loads: Loads, **broken: str) -> tuple[Target, dict[str, Boundary]]:
    kernel = rewritten(KERNEL, SOUND | broken)
    target = loads(FRAMEWORK, files() | {"verl/utils/experimental/torch_functional.py": kernel})
    made = [b for b in logit_functions.boundaries(target) if isinstance(b, Boundary) and "Fused" in b.path]
    return target, {s: b for b in made for s in b.settings}


def test_kernels_answer_and_read_back(loads: Loads) -> None:
    target, boundaries = _kernels(loads)
    assert set(boundaries) == {
        f"{q}, {of}" for q in ("logprob", "entropy") for of in ("hidden states", "last layer", "head")
    }
    check_calls(target, boundaries.values())


@pytest.mark.parametrize(
    ("setting", "broken"),
    [
        ("logprob, hidden states", {"LABELS": "0"}),
        ("logprob, head", {"ADDED": "more"}),
        ("logprob, last layer", {"WANTED": "states.requires_grad"}),
        ("entropy, hidden states", {"SIGN": "-1"}),
        ("entropy, head", {"SIGN": "0"}),
    ],
)
@pytest.mark.parametrize("found", [False, True])
def test_chunks(loads: Loads, setting: str, broken: dict[str, str], found: bool) -> None:
    """Labels of another chunk, a gradient of the last chunk alone, none behind a layer, of the wrong sign, none."""
    target, boundaries = _kernels(loads, **(broken if found else {}))
    check_verdict(REF001, boundaries[setting], setting, target, found=found)


#: The engine's step with a model that answers log-probs.
STEP = """
        def forward_step(self, part, data):
            lengths = [len(ids) for ids, _ in part]
            ids, places = (torch.cat(x) for x in zip(*part))
            missing = -len(ids) % self.ulysses_sequence_parallel_size
            labels = pad(ids.roll(-1), (0, missing))
            ids, places = pad(ids, (0, missing)), torch.cat([places, torch.arange(missing)])
            if self.use_ulysses_sp:
                ids, places, labels = share(ids), share(places), share(labels)
            about = {"temperature": data["temperature"], "shift_labels": labels[None]}
            output = self.module(input_ids=ids[None], attention_mask=None, position_ids=places[None], **about)
            names = {"log_probs": output.log_probs[0], "entropy": output.entropy[0]}
            if self.use_ulysses_sp:
                names = {name: gather(x)[: sum(lengths)] for name, x in names.items()}
            return {name: x.split(lengths) for name, x in names.items()}

        def former_step(self, part, data):
"""

CHOOSE = """
    def patch_forward_with_backends(model, use_fused_kernels=False, fused_kernels_backend=None):
        from verl.models.transformers.dense_common import forward_with_torch_backend
        if use_fused_kernels and fused_kernels_backend == "torch":
            model.__class__.forward = forward_with_torch_backend
"""

DENSE = """
    class CausalLMOutputForPPO:
        pass

    def forward_with_torch_backend(
        self, input_ids, attention_mask=None, position_ids=None, temperature=1.0, shift_labels=None
    ):
        states = self.model(input_ids=input_ids, attention_mask=attention_mask, position_ids=position_ids)[0]
        labels = LABELS
        log_probs = (states @ self.lm_head.weight.t() / DIVISOR).log_softmax(-1)
        return CausalLMOutputForPPO(
            log_probs=log_probs.gather(-1, labels.unsqueeze(-1)).squeeze(-1),
            entropy=-(log_probs.exp() * log_probs).sum(-1),
        )
"""


@pytest.mark.parametrize(
    ("setting", "labels", "divisor", "found"),
    [
        ("packed", "shift_labels", "temperature", False),
        ("sequence parallel", "shift_labels", "temperature", False),
        ("packed", "input_ids", "temperature", True),
        ("packed", "shift_labels", "1.0", True),
        ("sequence parallel", "input_ids.roll(-1, -1)", "temperature", True),
    ],
)
def test_pass_of_the_engine(loads: Loads, setting: str, labels: str, divisor: str, found: bool) -> None:
    """Labels that are not shifted, or only within a rank's share of the sequences; no temperature."""
    tree = engine_tree()
    engine = "verl/workers/engine/fsdp/transformer_impl.py"
    tree[engine] = tree[engine].replace("        def forward_step(self, part, data):\n", STEP.lstrip("\n"))
    trainer = "verl/trainer/ppo/ray_trainer.py"
    tree[trainer] = tree[trainer].replace(', "squares": "sum_pi_squared"', "")
    tree["verl/models/transformers/monkey_patch.py"] = CHOOSE
    tree["verl/models/transformers/dense_common.py"] = DENSE.replace("LABELS", labels).replace("DIVISOR", divisor)
    target = loads(FRAMEWORK, tree, {"omegaconf/__init__.py": OMEGACONF})
    mine = [b for b in engine_passes.boundaries(target) if isinstance(b, Boundary) and "dense_common" in b.path]
    assert len(mine) == 1
    check_verdict(REF001, mine[0], setting, target, found=found)
