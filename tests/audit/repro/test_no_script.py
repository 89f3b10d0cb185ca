"""A script that cannot be written says why when it runs."""

import pytest

from rl_sentinel.audit.repro.script import no_script


def test_the_reason_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match=r"^2$"):
        exec("\n".join(no_script('a "model" is called')))  # noqa: S102 - the script itself
    assert capsys.readouterr().out == 'no script: a "model" is called\n'
