"""What another layout has elsewhere."""

from pathlib import Path

import pytest

from rl_sentinel.adapters.relocation import SourceFiles, relocated


@pytest.fixture
def package(tmp_path: Path) -> Path:
    trainer = "class Trainer:\n    def step(self): ...\n"
    files = {
        "house_train/trainer.py": trainer,
        "house_train/utils/losses.py": "def loss(): ...\n",
        "house_train/metrics/losses.py": "def loss(): ...\ndef metric(): ...\n",
        "house_train/extra/losses.py": "def metric(): ...\n",
        "house_train/config/__init__.py": "from .main import Config\n",
        "house_train/config/main.py": "class Config: ...\n",
        "house_train/tools/tools.py": "def tool(): ...\n",
        "house_train/broken.py": "def (:\n",
        "house_train/top.py": "def exported(): ...\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    return tmp_path / "house_train"


@pytest.mark.parametrize(
    ("path", "answer"),
    [
        ("house.train.trainer.Trainer", "house_train.trainer.Trainer"),
        ("house.train.trainer.Trainer.step", "house_train.trainer.Trainer.step"),
        ("house.backends.utils.losses.loss", "house_train.utils.losses.loss"),
        ("house.train.config.Config", "house_train.config.main.Config"),
        ("house.tools.tools.tool", "house_train.tools.tools.tool"),
        ("house.losses.metric", "house.losses.metric"),
        ("house.trainer.Trainer.stop", "house.trainer.Trainer.stop"),
        ("house.broken.f", "house.broken.f"),
        ("house.house_train.exported", "house.house_train.exported"),
    ],
)
def test_module_of_the_same_name(package: Path, path: str, answer: str) -> None:
    assert relocated(SourceFiles.of(package), path) == answer
