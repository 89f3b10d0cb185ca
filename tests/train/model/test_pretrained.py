"""Policies of transformers give the numbers of the tiny Llama with the same weights."""

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

from rl_sentinel.core.errors import SentinelError
from rl_sentinel.train.config.settings import CriticSettings
from rl_sentinel.train.model.as_transformers import as_transformers
from rl_sentinel.train.model.character_tokenizer import CHARACTERS
from rl_sentinel.train.model.policy import Policy
from rl_sentinel.train.model.pretrained import PretrainedModel, PretrainedTokenizer, load_policy, require_transformers
from rl_sentinel.train.model.readout import unchanged
from rl_sentinel.train.rollout.engine.process import Engine
from rl_sentinel.train.run.journal import read_metrics
from rl_sentinel.train.run.loop import train
from rl_sentinel.train.run.memory_plan import plan_memory
from rl_sentinel.train.update.critic import build_critic
from training import folder_cache, recipe, sample_episodes

THERE = importlib.util.find_spec("transformers") is not None
extra = pytest.mark.skipif(not THERE, reason="transformers is an extra")


def _save(folder: Path) -> Policy:
    """Save the tiny Llama of the tests for transformers, and return it."""
    _, policy, _ = sample_episodes(recipe())
    for part in as_transformers(policy):
        part.save_pretrained(folder)
    return policy


@extra
@pytest.mark.filterwarnings("ignore")  # warnings of transformers
@pytest.mark.on_cpu
def test_weights_are_exchanged_and_sample_the_same(tmp_path: Path) -> None:
    own, theirs = _save(tmp_path), load_policy(str(tmp_path))
    token = torch.tensor([[2, 5, 9, 1]])
    torch.testing.assert_close(theirs(token), own(token), atol=1e-5, rtol=1e-5)
    assert (theirs.ends[0], theirs.padding, theirs.tokenizer.encode("a1")) == (1, 0, own.tokenizer.encode("a1"))
    prompts = [own.tokenizer.encode(t) for t in ("a", "b10", "ab", "1", "a+", "b")]
    uniform = torch.rand(6, 12, generator=torch.Generator().manual_seed(3))
    samples = [Engine(p, 1.0, 12).sample(prompts, uniform) for p in (own, theirs)]
    assert [s.token for s in samples[0]] == [s.token for s in samples[1]]
    assert len({len(s.token) for s in samples[0]}) > 1
    for one, two in zip(*samples, strict=True):
        assert one.logprob == pytest.approx(two.logprob, abs=1e-5)


@extra
@pytest.mark.filterwarnings("ignore")  # warnings of transformers
def test_pretrained_policy_trains(tmp_path: Path) -> None:
    _save(tmp_path / "model")
    more: dict[str, Any] = {"steps": 3, "checkpoint": {"every": 1}, "kl": {"loss": 0.1}}
    settings = recipe(tmp_path / "run", policy={"load": str(tmp_path / "model")}, **more)
    train(settings, cache=folder_cache(tmp_path))
    before = (tmp_path / "run" / "metrics.jsonl").read_bytes()
    (max((tmp_path / "run" / "checkpoints").iterdir()) / "seal.json").unlink()
    train(settings, cache=folder_cache(tmp_path))
    assert (tmp_path / "run" / "metrics.jsonl").read_bytes() == before
    assert [line["step"] for line in read_metrics(tmp_path / "run" / "metrics.jsonl")] == [1, 2, 3]


@extra
@pytest.mark.filterwarnings("ignore")  # warnings of transformers
@pytest.mark.parametrize("tied", [False, True])
def test_a_critic_copies_a_loaded_policy(tmp_path: Path, *, tied: bool) -> None:
    """Its head is its own also where the policy's head shares the weight of the embeddings."""
    _, policy, _ = sample_episodes(recipe())
    model, tokenizer = as_transformers(policy)
    model.config.tie_word_embeddings = tied
    model.tie_weights()
    model.save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    loaded = load_policy(str(tmp_path / "model"))
    token = torch.tensor([[2, 5, 9, 1]])
    before = loaded(token)
    critic = build_critic(loaded, CriticSettings(rate=0.1))
    assert critic is not None
    assert critic.model(token).tolist() == [[[0.0]] * 4]
    with torch.no_grad():
        critic.model.head.fill_(1.0)  # type: ignore[operator]  # the weight of its head
    states = loaded(token, of=unchanged)
    torch.testing.assert_close(critic.model(token)[..., 0], states.sum(-1))
    torch.testing.assert_close(loaded(token), before)

    more: dict[str, Any] = {"steps": 3, "checkpoint": {"every": 1}, "critic": {"rate": 1e-2}}
    estimator = {"name": "gae", "discount": 1.0, "decay": 0.9}
    settings = recipe(tmp_path / "run", policy={"load": str(tmp_path / "model")}, estimator=estimator, **more)
    train(settings, cache=folder_cache(tmp_path))
    logged = (tmp_path / "run" / "metrics.jsonl").read_bytes()
    (max((tmp_path / "run" / "checkpoints").iterdir()) / "seal.json").unlink()
    train(settings, cache=folder_cache(tmp_path))
    assert (tmp_path / "run" / "metrics.jsonl").read_bytes() == logged


@extra
@pytest.mark.filterwarnings("ignore")  # warnings of transformers
def test_missing_model_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(
        SentinelError,
        match=r"policy.load '.*none' cannot be loaded \(.*\): name a folder that save_pretrained wrote, a model",
    ) as raised:
        load_policy(str(tmp_path / "none"))
    assert "\n" not in str(raised.value)


@extra
def test_a_path_is_not_looked_for_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As ``runs/none`` beside other runs, or ``./none``: nobody asks the Hub for it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs").mkdir()
    for name in ("runs/none", "./none", str(tmp_path / "none")):
        with pytest.raises(SentinelError, match=r"cannot be loaded \(no such folder\)"):
            load_policy(name)


class DamagedError(Exception):
    """An error of a reader of weights."""


@pytest.mark.parametrize(
    ("error", "words"), [(DamagedError("header\ntoo long"), "header"), (DamagedError(), "DamagedE")]
)
def test_damaged_weights_are_one_line(monkeypatch: pytest.MonkeyPatch, error: Exception, words: str) -> None:
    def from_pretrained(*_: object, **__: object) -> None:
        raise error

    there: Any = ModuleType("transformers")
    there.AutoModelForCausalLM = there.AutoTokenizer = SimpleNamespace(from_pretrained=from_pretrained)
    monkeypatch.setitem(sys.modules, "transformers", there)
    require_transformers("policy.load")
    with pytest.raises(
        SentinelError, match=rf"^policy.load 'some' cannot be loaded \({words}.*\): fix this, or name a folder"
    ) as raised:
        load_policy("some")
    assert "\n" not in str(raised.value)


@extra
@pytest.mark.filterwarnings("ignore")  # warnings of transformers
@pytest.mark.parametrize("family", ["OPT", "GPT2", "Llama", "Falcon"])
def test_recomputed_layers_have_no_dropout(family: str) -> None:
    """Layers of OPT and Falcon call dropout themselves; GPT-2 has its layers under another name."""
    import transformers  # noqa: PLC0415 - an extra

    sizes: dict[str, Any] = {"hidden_size": 8, "num_attention_heads": 2, "num_hidden_layers": 2, "vocab_size": 11}
    of_family: dict[str, dict[str, Any]] = {
        "OPT": {"ffn_dim": 16, "word_embed_proj_dim": 8, "dropout": 0.5},
        "GPT2": {"resid_pdrop": 0.5},
        "Llama": {"intermediate_size": 16},
        "Falcon": {"hidden_dropout": 0.5, "parallel_attn": False, "new_decoder_architecture": False},
    }
    sizes |= of_family[family]
    made = getattr(transformers, f"{family}Config")(**sizes)
    head = {"GPT2": "GPT2LMHeadModel"}.get(family, f"{family}ForCausalLM")
    model = PretrainedModel(getattr(transformers, head)(made).train(mode=False))
    token = torch.tensor([[2, 5, 9, 1]])
    before = model(token)
    model.enable_recompute()
    torch.testing.assert_close(model(token), before)
    assert len(model.layers) == 2
    assert family != "Falcon" or made.hidden_dropout == 0.5


@extra
@pytest.mark.filterwarnings("ignore")  # warnings of transformers
@pytest.mark.parametrize(("cap", "plain"), [(None, True), (30.0, False)])
def test_capped_logits_are_no_plain_product(cap: float | None, plain: bool) -> None:
    """The logits of a small random model are so small that the cap does not show."""
    import transformers  # noqa: PLC0415 - an extra

    sizes = {"hidden_size": 8, "intermediate_size": 16, "num_attention_heads": 2, "num_key_value_heads": 1}
    more = {"num_hidden_layers": 1, "vocab_size": 11, "head_dim": 4, "final_logit_softcapping": cap}
    model = transformers.Gemma2ForCausalLM(transformers.Gemma2Config(**sizes, **more))
    assert (PretrainedModel(model.train(mode=False)).head is not None) is plain


def test_layers_are_the_longest_list_of_the_decoder() -> None:
    decoder = torch.nn.Module()
    decoder.norms, decoder.blocks = (torch.nn.ModuleList(torch.nn.Linear(1, 1) for _ in range(n)) for n in (1, 3))
    model = PretrainedModel(torch.nn.Linear(1, 1), projects=False)
    object.__setattr__(model, "inner", SimpleNamespace(get_decoder=lambda: decoder))
    assert model.layers == list(decoder.blocks)
    object.__setattr__(model, "inner", SimpleNamespace(get_decoder=lambda: torch.nn.Linear(1, 1)))
    with pytest.raises(SentinelError, match=r"^policy.load is a SimpleNamespace without a list of layers, which polic"):
        _ = model.layers


def test_a_critic_needs_hidden_states() -> None:
    policy = Policy(PretrainedModel(torch.nn.Linear(2, 2), projects=False), SimpleNamespace(padding=0, ends=(1,)))
    assert build_critic(policy, None) is None
    with pytest.raises(SentinelError, match=r"^critic needs a policy whose logits are hidden states times a weight; "):
        build_critic(policy, CriticSettings(rate=0.1))


def test_tokenizer_has_the_positions_of_its_model() -> None:
    tokenizer = SimpleNamespace(eos_token_id=1, pad_token_id=None)
    assert PretrainedTokenizer(tokenizer, "some", 8).positions == 8
    assert PretrainedTokenizer(tokenizer, "some").positions is None


@extra
@pytest.mark.filterwarnings("ignore")  # warnings of transformers
def test_every_end_token_ends_a_response(tmp_path: Path) -> None:
    """The generation config has a second end token, as the models with a token for the end of a message."""
    _save(tmp_path)
    place = tmp_path / "generation_config.json"
    place.write_text(json.dumps(json.loads(place.read_text()) | {"eos_token_id": [1, 5]}))
    policy = load_policy(str(tmp_path))
    assert policy.ends == (1, 5)
    assert policy.tokenizer.end_texts == ("$", CHARACTERS[3])
    assert policy.tokenizer.decode([2, 5, 3, 1]).replace(" ", "") == CHARACTERS[:2]
    uniform = torch.rand(40, 12, generator=torch.Generator().manual_seed(3))
    sampled = Engine(policy, 1.0, 12).sample([policy.tokenizer.encode("a")] * 40, uniform)
    assert {s.token[-1] for s in sampled if s.ended} == {1, 5}
    assert not any(set(s.token[:-1]) & {1, 5} for s in sampled)


@extra
@pytest.mark.filterwarnings("ignore")  # warnings of transformers
def test_chat_template_of_the_tokenizer_or_of_a_file(tmp_path: Path) -> None:
    _save(tmp_path)
    messages = [{"role": "user", "content": "1+2"}]
    words = 'chat.template is "tokenizer", but the tokenizer has no chat template: set chat.template to a Jinja file$'
    with pytest.raises(SentinelError, match=words):
        load_policy(str(tmp_path)).tokenizer.render(messages, None)
    template = "{{ messages[0].content }}{{ eos_token }}{% if add_generation_prompt %}={% endif %}"
    (tmp_path / "chat_template.jinja").write_text(template)
    tokenizer = load_policy(str(tmp_path)).tokenizer
    assert tokenizer.render(messages, None) == "1+2$="
    assert tokenizer.encode(tokenizer.render(messages, None))[-2:] == (1, tokenizer.encode("=")[0])
    assert tokenizer.render(messages, "{{ messages[0].content }}>") == "1+2>"
    with pytest.raises(SentinelError, match=r"chat.template cannot render a conversation \(.*\): fix the Jinja file"):
        tokenizer.render(messages, "{{ raise_exception('no') }}")


@extra
@pytest.mark.filterwarnings("ignore")  # warnings of transformers
def test_memory_of_a_loaded_model_is_that_of_its_weights(tmp_path: Path) -> None:
    """The tiny Llama has the same shapes by transformers, so it needs the same memory but for what a pass keeps."""
    own = _save(tmp_path)
    loaded, built = plan_memory(recipe(policy={"load": str(tmp_path)})).needs, plan_memory(recipe()).needs
    assert loaded["weights"] == 4 * sum(p.numel() for p in own.model.parameters())
    assert {n: v for n, v in loaded.items() if n != "activations"} == {
        n: v for n, v in built.items() if n != "activations"
    }
    assert 0.5 < loaded["activations"] / built["activations"] < 2
