"""AReaL's forward passes, on a specimen of its engine: what they return, and what the laws find there."""

import pytest
import torch

from adapters.areal.test_earlier_engines import TENSORS
from adapters.areal_specimen import CONFIG
from adapters.checks import Loads, check_verdict, outputs_of, the_only
from adapters.kit.round_trip import check_round_trip
from rl_sentinel.adapters.areal import FRAMEWORK
from rl_sentinel.adapters.areal.forward import boundaries
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.batch import batch_of
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.core.law import Law
from rl_sentinel.laws.differs_from_reference import LAW as REF001
from rl_sentinel.laws.knob_without_effect import LAW as CFG001
from rl_sentinel.laws.packing_differs import LAW as PAD002
from rl_sentinel.laws.tokens_or_samples_lost import LAW as PLC004

ENGINE = """
    import torch
    import torch.distributed as dist
    import torch.distributed.nn.functional as dist_F

    GROUP = []

    def set_ulysses_sequence_parallel_group(group):
        GROUP[:] = [group]

    class FSDPEngine:
        def whole(self, answers):
            if self.parallel_helper.sp_size == 1:
                return answers
            return torch.cat(dist_F.all_gather(answers, group=self.sp_group))

        def ulysses_part(self, values):
            size = self.parallel_helper.sp_size
            spare = -len(values) % size
            parts = torch.nn.functional.pad(values, (0, spare)).chunk(size)
            return parts[dist.get_rank(GROUP[0]) if size > 1 else 0]

        def values(self, data):
            keep = data["attention_mask"].bool()
            packed = {key: x[keep] for key, x in data.items() if x.dim() > 1}
            packed["input_ids"] = self.ulysses_part(packed["input_ids"])
            answers = self.whole(self.model(**packed).logits.reshape(-1))
            return torch.zeros(keep.shape).masked_scatter(keep, answers)

        def forward_batch(self, data):
            rows = []
            for cut in torch.arange(len(data["input_ids"])).tensor_split(self.config.mb_spec.n_mbs):
                keep = data["attention_mask"][cut].bool()
                packed = {key: x[cut][keep] for key, x in data.items() if x.dim() > 1}
                if len(cut):
                    labels = LABELS
                    packed["input_ids"] = self.ulysses_part(packed["input_ids"])
                    logits = self.model(**packed).logits.squeeze(0) / HEAT
                    answers = self.whole(logits.log_softmax(-1).gather(-1, labels[:, None]).squeeze(-1))
                    rows.append(torch.zeros(keep.shape).masked_scatter(PLACES, answers))
            return torch.cat(rows)
"""

ACTOR = """
    import torch

    class PPOActor:
        def __init__(self, config, engine):
            self.config, self.engine = config, engine

        @torch.no_grad()
        def _compute_logp(self, data):
            self.engine.MODE()
            return self.engine.forward_batch(data)
"""

CRITIC = """
    class PPOCritic:
        def __init__(self, config, engine):
            self.config, self.engine = config, engine

        def _compute_values(self, data):
            return self.engine.values(data)
"""

#: Labels that are rolled before a sequence is shared, and after it.
LABELS = 'self.ulysses_part(packed["input_ids"].long().roll(-SHIFT))'
ROLLED_LATE = 'self.ulysses_part(packed["input_ids"].long()).roll(-SHIFT)'

#: The shape of releases in which the actor passes a function of the logits to the engine.
EARLY_ENGINE = """
    import torch

    class FSDPEngine:
        def forward(self, input_, post_hook):
            keep = input_["attention_mask"].bool()
            packed = {key: x[keep] for key, x in input_.items() if x.dim() > 1}
            answers = post_hook(self.model(**packed).logits.squeeze(0), packed)
            return torch.zeros(keep.shape).masked_scatter(keep, answers)
"""

EARLY_ACTOR = """
    class PPOActor:
        def __init__(self, config, engine):
            self.config, self.engine = config, engine

        def compute_logp(self, data):
            def answers(logits, packed):
                labels = packed["input_ids"].long().roll(-1)
                return (logits / (HEAT)).log_softmax(-1).gather(-1, labels[:, None]).squeeze(-1)

            return self.engine.forward(data, post_hook=answers)
"""

FIELDS = """
    @dataclass
    class MicroBatchSpec:
        n_mbs: int = 1

    @dataclass
    class PPOActorConfig:
        mb_spec: MicroBatchSpec | None = None
        temperature: float = 1.0
        use_decoupled_loss: bool = False
        recompute_logprob: bool = False

    @dataclass
    class PPOCriticConfig:
        mb_spec: MicroBatchSpec | None = None
        is_critic: bool = False
"""


def _tree(
    heat: str = "self.config.temperature",
    shift: int = 1,
    places: str = "keep",
    labels: str = LABELS,
    mode: str = "eval",
) -> dict[str, str]:
    return {
        "areal/__init__.py": "",
        "areal/api/cli_args.py": CONFIG + FIELDS,
        "areal/engine/fsdp_engine.py": ENGINE.replace("LABELS", labels)
        .replace("HEAT", heat)
        .replace("SHIFT", str(shift))
        .replace("PLACES", places),
        "areal/trainer/ppo/actor.py": ACTOR.replace("MODE", mode),
    }


def _bound(loads: Loads, tree: dict[str, str]) -> tuple[Target, Boundary]:
    target = loads(FRAMEWORK, tree)
    return target, the_only(boundaries(target))


def test_arguments_read_back(loads: Loads) -> None:
    """Tokens, lengths, logits and temperature survive the round trip, padded and in several micro-batches."""
    check_round_trip(*_bound(loads, _tree()))


def test_log_probs_by_hand(loads: Loads) -> None:
    """A vocabulary of two tokens with probabilities 3/4 and 1/4, then 1/2 each."""
    target, boundary = _bound(loads, _tree())
    log3 = torch.tensor(3.0).log().item()
    batch = batch_of(
        torch.tensor([[True, True], [True, False]]),
        prompt_length=torch.tensor([1, 2]),
        token=torch.tensor([[0, 1], [1, 0]]),
        logits=torch.tensor([[[log3, 0.0], [log3, 0.0]], [[0.0, 0.0], [9.0, -9.0]]]),
    )
    outputs = outputs_of(target, boundary, "default", batch)
    expected = torch.tensor([[0.75, 0.25], [0.5, 1.0]]).log()
    torch.testing.assert_close(outputs["logprob"], expected)


@pytest.mark.parametrize(
    ("law", "broken"),
    [
        (CFG001, _tree(heat="1.0")),
        (REF001, _tree(heat="1.0")),
        (REF001, _tree(shift=0)),
        (REF001, _tree(places="torch.arange(keep.numel()).reshape(keep.shape) < keep.sum()")),
    ],
)
@pytest.mark.parametrize("found", [False, True])
def test_found_where_broken_alone(loads: Loads, law: Law, broken: dict[str, str], found: bool) -> None:
    """A temperature without effect; answers for the token before; answers put where padding should be."""
    target, boundary = _bound(loads, broken if found else _tree())
    check_verdict(law, boundary, "default", target, found=found)


#: Positions that begin anew with each packed sequence.
ANEW = "torch.cat([torch.arange(n) for n in keep.sum(1).tolist()])"


@pytest.mark.parametrize(
    ("positions", "mask", "found"),
    [
        (ANEW, "None", False),
        (ANEW, "torch.ones(1, len(labels))", False),
        (ANEW, "torch.arange(len(labels)).unsqueeze(0) + 1 < len(labels)", True),
        ("torch.arange(len(labels))", "None", True),
    ],
    ids=["no mask", "mask of ones", "mask with a 0", "positions go on"],
)
def test_attention_of_packed_sequences(loads: Loads, positions: str, mask: str, *, found: bool) -> None:
    """A sequence that attends to the one before it in the pack has other log-probs."""
    tree, path = _tree(), "areal/engine/fsdp_engine.py"
    passes = "logits = self.model(**packed)"
    assert passes in tree[path]
    passed = f'packed |= {{"position_ids": {positions}, "attention_mask": {mask}}}'
    tree[path] = tree[path].replace(passes, f"{passed}\n{' ' * 20}{passes}")
    target, boundary = _bound(loads, tree)
    check_verdict(PAD002, boundary, "default", target, found=found)


@pytest.mark.parametrize(("mode", "found"), [("eval", False), ("train", True)])
def test_pass_in_training_mode(loads: Loads, mode: str, found: bool) -> None:
    """In training mode, dropout changes the log-probs."""
    target, boundary = _bound(loads, _tree(mode=mode))
    check_verdict(REF001, boundary, "default", target, found=found)


@pytest.mark.parametrize(
    ("labels", "setting", "found"),
    [(LABELS, "shared sequences", False), (ROLLED_LATE, "default", False), (ROLLED_LATE, "shared sequences", True)],
)
def test_ranks_that_share_sequences(loads: Loads, labels: str, setting: str, found: bool) -> None:
    """The label of the last place of a rank's part is the first token of the next part."""
    target, boundary = _bound(loads, _tree(labels=labels))
    check_verdict(REF001, boundary, setting, target, found=found)


@pytest.mark.parametrize(("gathers", "found"), [("self.whole", False), ("(lambda part: part.repeat(2))", True)])
def test_values_of_shared_sequences(loads: Loads, gathers: str, found: bool) -> None:
    """A critic's values are those of all parts, in the order of the ranks."""
    tree = _tree() | {"areal/trainer/ppo/critic.py": CRITIC}
    engine = tree["areal/engine/fsdp_engine.py"].replace("self.whole(self.model", f"{gathers}(self.model")
    target = loads(FRAMEWORK, tree | {"areal/engine/fsdp_engine.py": engine})
    _, boundary = boundaries(target)
    assert isinstance(boundary, Boundary)
    check_round_trip(target, boundary)
    check_verdict(PLC004, boundary, "shared sequences", target, found=found)


def test_release_with_another_layout(loads: Loads) -> None:
    """Without ``forward_batch`` there is nothing to bind."""
    tree = _tree()
    tree["areal/engine/fsdp_engine.py"] = "class FSDPEngine: pass\n"
    assert list(boundaries(loads(FRAMEWORK, tree))) == []


@pytest.mark.parametrize(("heat", "found"), [("self.config.temperature", False), ("1.0", True)])
def test_releases_whose_actor_reads_the_logits(loads: Loads, heat: str, found: bool) -> None:
    early = {
        "areal/engine/fsdp_engine.py": EARLY_ENGINE,
        "areal/trainer/ppo/actor.py": EARLY_ACTOR.replace("HEAT", heat),
    }
    target, boundary = _bound(loads, _tree() | early)
    assert set(boundary.settings) == {"default", "other temperature"}  # no rank has a part of a sequence
    check_verdict(REF001, boundary, "other temperature", target, found=found)


def test_releases_that_take_a_tensordict(loads: Loads) -> None:
    actor = EARLY_ACTOR.replace("HEAT", "self.config.temperature") + TENSORS
    early = {"areal/engine/fsdp_engine.py": EARLY_ENGINE, "areal/trainer/ppo/actor.py": actor}
    target, boundary = _bound(loads, _tree() | early)
    check_verdict(REF001, boundary, "other temperature", target, found=False)
