"""``rl-sentinel export``: write a run's policy as a folder for transformers."""

from pathlib import Path
from typing import Annotated

import typer

from rl_sentinel.train.run.trained_policy import export_run


def export(
    run: Annotated[str, typer.Argument(metavar="RUN", help="Folder of a run, or RUN/best.")],
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="A new folder.")],
    *,
    adapter: Annotated[bool, typer.Option("--adapter", help="Only the adapter of LoRA, for peft.")] = False,
) -> None:
    """Write the policy of a run's newest checkpoint, or of RUN/best, to FOLDER for transformers and vLLM."""
    export_run(run, folder, adapter=adapter)
    weights = "the adapter" if adapter else "the weights"
    print(f"{folder}: {weights}, the configuration and the tokenizer")  # noqa: T201 - output of a command
