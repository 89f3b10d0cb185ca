#!/bin/sh
# Build the sdist and the wheel from it, and install the wheel in a clean environment.
set -eu
python=$1 torch=$2
rm -rf dist .venv-wheel
.venv/bin/python -m build -q --outdir dist
"$python" -m venv .venv-wheel
.venv-wheel/bin/python -m pip install -q --disable-pip-version-check --no-compile "torch==$torch"
.venv-wheel/bin/python -m pip install -q --disable-pip-version-check --no-compile -r requirements/lock.txt
.venv-wheel/bin/python -m pip install -q --disable-pip-version-check --no-compile --no-deps dist/*.whl
