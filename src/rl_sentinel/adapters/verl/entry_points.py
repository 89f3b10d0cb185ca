"""How a user selects one of verl's trainers, in the words of a release: ``trainer.use_v1`` exists since June 2026."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary, Unbound

#: Words about the option -> those about the program of releases without it.
PROGRAMS: Mapping[str, str] = {
    "trainer.use_v1=True (the default)": "python -m verl.trainer.main_ppo_sync",
    "trainer.use_v1=True": "python -m verl.trainer.main_ppo_sync",
    "trainer.use_v1=False": "python -m verl.trainer.main_ppo",
}


def in_words_of_release(
    bind: Callable[[Target], Iterator[Boundary | Unbound]],
) -> Callable[[Target], Iterator[Boundary | Unbound]]:
    """The boundaries that ``bind`` yields, whose reach names the program in releases without the option."""

    def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
        option = has_option(target)
        for made in bind(target):
            yield made if option or isinstance(made, Unbound) else replace(made, reach=reworded(made.reach))

    return boundaries


def has_option(target: Target) -> bool:
    """Whether the trainer's configuration has the option; True if the configuration is missing."""
    file = target.root / "verl" / "trainer" / "config" / "ppo_trainer.yaml"
    return not file.is_file() or "use_v1:" in file.read_text(encoding="utf-8")


def reworded(reach: str) -> str:
    """A reach that names the program instead of the option."""
    for option, program in PROGRAMS.items():
        reach = reach.replace(option, program)
    return reach
