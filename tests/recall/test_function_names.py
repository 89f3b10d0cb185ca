"""Functions that a row names in a tree."""

from pathlib import Path

import pytest

from rl_sentinel.recall.function_names import called_function, function_names

MODULE = """
class Loss:
    def __call__(self): ...

if True:
    def reduce_loss(): ...

try:
    from fast import fused_loss
except ImportError:
    def fused_loss():
        def inner(): ...

def forward_with_torch(): ...
def forward_with_triton(): ...
"""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name, text in {"new/trainer/losses.py": MODULE, "new/losses.py": "def reduce_loss(): ...\n"}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    return tmp_path


@pytest.mark.parametrize(
    ("words", "names"),
    [
        ("reduce_loss(token_mean)", ("losses.py:reduce_loss",)),
        ("Loss.__call__", ("losses.py:Loss.__call__",)),
        ("Loss defaults", ("losses.py:Loss", "losses.py:Loss.*")),
        ("forward_with_*", ("losses.py:forward_with_torch", "losses.py:forward_with_triton")),
        ("fused_loss", ("losses.py:fused_loss",)),
        ("inner", ("new/trainer/losses.py:*",)),
        ("the mask of the loss", ("new/trainer/losses.py:*",)),
    ],
)
def test_words(tree: Path, words: str, names: tuple[str, ...]) -> None:
    assert function_names(tree, "old/trainer/losses.py", words) == names


def test_a_file_that_the_tree_does_not_have(tree: Path) -> None:
    assert function_names(tree, "old/kl.py", "kl") == ()


@pytest.mark.parametrize(
    ("boundary", "name"),
    [
        ("new.losses.reduce_loss", "new/losses.py:reduce_loss"),
        ("new.losses.reduce_loss -> new.trainer.losses.Loss.__call__", "new/trainer/losses.py:Loss.__call__"),
        ("old.losses.reduce_loss", ""),
    ],
)
def test_function_that_a_boundary_calls(tree: Path, boundary: str, name: str) -> None:
    assert called_function(tree, boundary) == name
