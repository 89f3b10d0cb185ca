#!/bin/sh
# Run against the installed wheel the tests of what a wheel can get wrong: imports, package data, entry points, the
# command line, worker processes, and what depends on the extras.
set -eu
here=$(pwd)
away=$(mktemp -d)
cp -r tests docs examples recipes "$away/"
cp pyproject.toml "$away/"
cd "$away"
"$here/.venv-wheel/bin/python" -c "import rl_sentinel; assert '.venv-wheel' in rl_sentinel.__file__, rl_sentinel.__file__"
"$here/.venv-wheel/bin/python" -m pytest -n 2 -m "not slow" tests/test_package.py tests/cli tests/audit/test_known.py \
    tests/audit/engine/test_worker.py tests/audit/repro tests/audit/sandbox/test_worker_process.py tests/audit/source
# Modules that read the extras (transformers, peft, matplotlib, tensorboard, reasoning-gym): `make test` ran them without.
"$here/.venv-wheel/bin/python" -m pip install -q --disable-pip-version-check -r "$here/requirements/train.txt"
"$here/.venv-wheel/bin/python" -m pytest -n 2 -m "not slow" tests/test_package.py tests/report tests/train/model \
    tests/train/rollout/environment tests/train/config tests/train/run tests/cli/test_export.py
# What the package index would refuse. In the same environment, last: twine brings much that a user does not have.
"$here/.venv-wheel/bin/python" -m pip install -q --disable-pip-version-check twine==7.0.0
"$here/.venv-wheel/bin/python" -m twine check --strict "$here"/dist/*
rm -rf "$away"
