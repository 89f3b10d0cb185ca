#!/bin/sh
# Build the wheel, install it in a clean environment, and run the tests against it.
set -eu
python=$1 torch=$2
rm -rf dist .venv-wheel
.venv/bin/python -m build -q --wheel --outdir dist
"$python" -m venv .venv-wheel
.venv-wheel/bin/python -m pip install -q --disable-pip-version-check "torch==$torch"
.venv-wheel/bin/python -m pip install -q --disable-pip-version-check -r requirements/lock.txt
.venv-wheel/bin/python -m pip install -q --disable-pip-version-check --no-deps dist/*.whl
here=$(pwd)
away=$(mktemp -d)
cp -r tests docs examples recipes "$away/"
cp pyproject.toml "$away/"
cd "$away"
"$here/.venv-wheel/bin/python" -c "import rl_sentinel; assert '.venv-wheel' in rl_sentinel.__file__, rl_sentinel.__file__"
# What is asked of trainer and reports without the extras, `make test` has asked; here it is asked with them, below.
"$here/.venv-wheel/bin/python" -m pytest -n 2 tests --ignore=tests/house --ignore=tests/scripts \
    --ignore=tests/train --ignore=tests/report
# What reads the extras (transformers, matplotlib, tensorboard, reasoning-gym), with them.
"$here/.venv-wheel/bin/python" -m pip install -q --disable-pip-version-check -r "$here/requirements/train.txt"
"$here/.venv-wheel/bin/python" -m pytest -n 2 tests/train tests/report
rm -rf "$away"
