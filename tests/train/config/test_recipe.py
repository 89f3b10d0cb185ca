"""Every error in a recipe is one line."""

from pathlib import Path

import pytest

from rl_sentinel.core.errors import SentinelError
from rl_sentinel.train.config.recipe import load_recipe
from training import TOML, recipe

SHIPPED = Path(__file__).parents[3] / "recipes"


def _write(folder: Path, text: str = TOML) -> Path:
    place = folder / "r.toml"
    place.write_text(text.format(out=folder / "run"), encoding="utf-8")
    return place


def test_overrides_reach_every_table(tmp_path: Path) -> None:
    loaded = load_recipe(
        _write(tmp_path), ["seed=7", "out=elsewhere", "update.rate=1e-3", "environment.letters=abc", "kl.loss=1"]
    )
    assert (loaded.seed, loaded.out, loaded.update.rate, loaded.kl and loaded.kl.loss) == (7, "elsewhere", 1e-3, 1)
    assert loaded.environment.parameters == {"letters": "abc"}


@pytest.mark.parametrize(
    ("override", "line"),
    [
        ("sede=1", "[sede] is unknown, the nearest is 'seed'"),
        ("update.ratte=1", "[update.ratte] is unknown, the nearest is 'rate'"),
        ("warm.stepz=1", "[warm.stepz] is unknown, the nearest is 'steps'"),
        ("update.zzzz=1", "[update.zzzz] is unknown, expected one of prompts, epochs, rows, tokens, rate, betas"),
        ("steps=0", "[steps] is 0, expected 1 or more"),
        ("steps=true", "[steps] is True, expected a valid integer"),
        ("update.rate=fast", "[update.rate] is 'fast', expected a valid number"),
        ("loss.aggregation=mean", "[loss.aggregation] is 'mean', expected 'token-mean', "),
        ("warm={}", "[warm.steps] is missing, expected a value: add steps"),
        ("warm=3", "[warm] is 3, expected a table, such as warm = { steps = ..., rows = ... }"),
        ("estimator=grpo", "[estimator] is 'grpo', expected a table, such as estimator = { name = ... }"),
        ("correction.reject=1", "[correction.reject] is 1, expected a list, such as reject = [{ name = ... }]"),
        ("update.rate=inf", "[update.rate] is inf, expected a finite number"),
        ("update.clip=inf", "[update.clip] is inf, expected a finite number"),
        ("critic={rate=inf}", "[critic.rate] is inf, expected a finite number"),
        ("warm={steps=1, rate=inf}", "[warm.rate] is inf, expected a finite number"),
        ("kl.target=inf", "[kl.target] is inf, expected a finite number"),
        ("reward.bias=nan", "[reward.bias] is nan, expected a finite number"),
        ("update.betas=[nan, 0.9]", "[update.betas.0] is nan, expected"),
        ("seed=100000000000000000000", "[seed] is 100000000000000000000, expected less than 92233720368547"),
        ("update.rate=1e300", "[update.rate] is 1e+300, expected at most 10000"),
        ("update.decay=1e300", "[update.decay] is 1e+300, expected at most 1000"),
        ("rollout.temperature=inf", "[rollout.temperature] is inf, expected"),
        ("rollout.temperature=1e300", "[rollout.temperature] is 1e+300, expected at most 100"),
        (
            "rollout.temperature=1e-300",
            "[rollout.temperature] is 1e-300, expected 0.01 or more",
        ),
    ],
)
def test_wrong_keys_and_values_are_one_line(tmp_path: Path, override: str, line: str) -> None:
    place = _write(tmp_path)
    with pytest.raises(SentinelError) as error:
        load_recipe(place, [override])
    assert str(error.value).startswith(f"recipe {place}{line}")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("override", ["seed", "=1", "a..b=1"])
def test_invalid_override_is_rejected(tmp_path: Path, override: str) -> None:
    with pytest.raises(SentinelError, match=r"override is .*, expected key=value, such as seed=1"):
        load_recipe(_write(tmp_path), [override])


def test_override_with_a_line_break_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(SentinelError, match=r"override 'seed=1\\nsteps=3' has a line break, expected key=value"):
        load_recipe(_write(tmp_path), ["seed=1\nsteps=3"])


def test_reward_bounds_may_be_infinite(tmp_path: Path) -> None:
    recipe = load_recipe(_write(tmp_path), ["reward.most=inf", "reward.least=-inf"])
    assert (recipe.reward.least, recipe.reward.most) == (None, None)  # JSON has no infinity
    assert load_recipe(_write(tmp_path), ["reward.most=-inf"]).reward.most == -float("inf")  # rejected with the path


def test_override_below_a_value_is_rejected(tmp_path: Path) -> None:
    words = r"override 'seed.x=1' sets a key in seed, expected a table: seed has a plain value$"
    with pytest.raises(SentinelError, match=words):
        load_recipe(_write(tmp_path, "seed = 1\n" + TOML), ["seed.x=1"])


def test_missing_and_malformed_files_are_one_line(tmp_path: Path) -> None:
    with pytest.raises(SentinelError, match=r"recipe .*none.toml cannot be read \(No such file or directory\)"):
        load_recipe(tmp_path / "none.toml")
    with pytest.raises(SentinelError, match=r"recipe .* is malformed"):
        load_recipe(_write(tmp_path, "out = ["))


@pytest.mark.skipif(not SHIPPED.is_dir(), reason="recipes lie in the source tree, not in the wheel")
@pytest.mark.parametrize("name", sorted(p.name for p in SHIPPED.glob("*.toml")))
def test_shipped_recipe_is_valid(name: str) -> None:
    from rl_sentinel.train.config.selection import select_components  # noqa: PLC0415 - for this test alone

    loaded = load_recipe(SHIPPED / name)
    assert select_components(loaded).choices.estimator is not None
    assert Path(loaded.out).name == Path(name).stem


def test_recipe_of_the_tests_equals_its_toml(tmp_path: Path) -> None:
    assert load_recipe(_write(tmp_path)) == recipe(tmp_path / "run")
