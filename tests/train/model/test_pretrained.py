"""Policies of transformers: the same numbers as the tiny Llama of the same weights, and one line for a missing one."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

from rl_sentinel.core.errors import SentinelError
from rl_sentinel.train.model.character_tokenizer import LETTERS
from rl_sentinel.train.model.policy import Policy
from rl_sentinel.train.model.pretrained import Tokens, loaded, require_there
from rl_sentinel.train.rollout.engine.process import Engine
from rl_sentinel.train.run.journal import lines
from rl_sentinel.train.run.loop import train
from training import kept_in, recipe, sampled

THERE = importlib.util.find_spec("transformers") is not None
extra = pytest.mark.skipif(not THERE, reason="transformers is an extra")


def _saved(folder: Path) -> Policy:
    """The tiny Llama of the tests, written as transformers would have it; and itself."""
    from tokenizers import Tokenizer, models, pre_tokenizers  # noqa: PLC0415 - an extra
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast  # noqa: PLC0415 - an extra

    _, policy, _ = sampled(recipe())
    config = LlamaConfig(
        vocab_size=len(LETTERS) + 2,
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        max_position_embeddings=32,
        rms_norm_eps=1e-6,
        tie_word_embeddings=False,
        bos_token_id=None,
        eos_token_id=1,
        pad_token_id=0,
    )
    model = LlamaForCausalLM(config)
    model.load_state_dict(policy.model.state_dict())
    model.save_pretrained(folder)
    vocabulary = {"_": 0, "$": 1} | {letter: n + 2 for n, letter in enumerate(LETTERS)}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="_"))  # noqa: S106 - no password
    tokenizer.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    tokens = {"eos_token": "$", "pad_token": "_"}
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, **tokens).save_pretrained(folder)
    return policy


@extra
@pytest.mark.filterwarnings("ignore")  # of transformers' own
def test_weights_are_exchanged_and_sample_the_same(tmp_path: Path) -> None:
    """By their names; prompts of unlike lengths, rows that end early, with transformers' cache."""
    own, theirs = _saved(tmp_path), loaded(str(tmp_path))
    token = torch.tensor([[2, 5, 9, 1]])
    torch.testing.assert_close(theirs(token), own(token), atol=1e-5, rtol=1e-5)
    assert (theirs.end, theirs.padding, theirs.text.ids("a1")) == (1, 0, own.text.ids("a1"))
    prompts = [own.text.ids(t) for t in ("a", "b10", "ab", "1", "a+", "b")]
    chance = torch.rand(6, 12, generator=torch.Generator().manual_seed(3))
    found = [Engine(p, 1.0, 12).sample(prompts, chance) for p in (own, theirs)]
    assert [s.token for s in found[0]] == [s.token for s in found[1]]
    assert len({len(s.token) for s in found[0]}) > 1
    for one, two in zip(*found, strict=True):
        assert one.logprob == pytest.approx(two.logprob, abs=1e-5)


@extra
@pytest.mark.filterwarnings("ignore")  # of transformers' own
def test_loaded_policy_trains(tmp_path: Path) -> None:
    """As the tiny one of the same weights would; and its checkpoint is taken up."""
    _saved(tmp_path / "model")
    more: dict[str, Any] = {"steps": 3, "checkpoint": {"every": 1}, "kl": {"loss": 0.1}}
    wanted = recipe(tmp_path / "run", policy={"load": str(tmp_path / "model")}, **more)
    train(wanted, kept=kept_in(tmp_path))
    before = (tmp_path / "run" / "metrics.jsonl").read_bytes()
    (max((tmp_path / "run" / "checkpoints").iterdir()) / "seal.json").unlink()
    train(wanted, kept=kept_in(tmp_path))
    assert (tmp_path / "run" / "metrics.jsonl").read_bytes() == before
    assert [line["step"] for line in lines(tmp_path / "run" / "metrics.jsonl")] == [1, 2, 3]


@extra
@pytest.mark.filterwarnings("ignore")  # of transformers' own
def test_missing_model_is_one_line(tmp_path: Path) -> None:
    """With its name."""
    with pytest.raises(
        SentinelError, match=r"policy.load '.*none' cannot be loaded \(.*\): name a folder or a model"
    ) as told:
        loaded(str(tmp_path / "none"))
    assert "\n" not in str(told.value)


class DamagedError(Exception):
    """What a reader of weights raises; it is of no kind that Python knows."""


@pytest.mark.parametrize(
    ("error", "words"), [(DamagedError("header\ntoo long"), "header"), (DamagedError(), "DamagedE")]
)
def test_damaged_weights_are_one_line(monkeypatch: pytest.MonkeyPatch, error: Exception, words: str) -> None:
    """Whatever reads them raises."""

    def from_pretrained(*_: object, **__: object) -> None:
        raise error

    there: Any = ModuleType("transformers")
    there.AutoModelForCausalLM = there.AutoTokenizer = SimpleNamespace(from_pretrained=from_pretrained)
    monkeypatch.setitem(sys.modules, "transformers", there)
    require_there()
    with pytest.raises(
        SentinelError, match=rf"^policy.load 'some' cannot be loaded \({words}.*\): name a folder"
    ) as told:
        loaded("some")
    assert "\n" not in str(told.value)


def test_text_knows_how_long_its_model_reads() -> None:
    """So that a longer prompt is refused."""
    tokenizer = SimpleNamespace(eos_token_id=1, pad_token_id=None)
    assert (Tokens(tokenizer, "some", 8).positions, Tokens(tokenizer, "some").positions) == (8, None)


def test_without_transformers_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """By whoever wants to know before a run has a folder."""
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(SentinelError, match=r"^policy.load needs transformers, which is not installed: pip install"):
        require_there()


@pytest.mark.skipif(THERE, reason="transformers is there")
def test_without_transformers_the_extra_is_named(tmp_path: Path) -> None:
    """Before anything is written but the run's folder."""
    with pytest.raises(
        SentinelError, match=r"policy.load needs transformers, which is not installed: pip install 'rl-s"
    ):
        train(recipe(tmp_path / "run", policy={"load": "some/model"}), kept=kept_in(tmp_path))
    assert not (tmp_path / "run" / "metrics.jsonl").exists()
