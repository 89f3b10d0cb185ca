#!/bin/sh
# An environment with the peers that must be installed, then a package of benchmarks in it.
set -eu
python=$1 torch=$2 package=${3:-benchmarks}
env=.venv-bench
if [ ! -f "$env/.ready" ]; then
    rm -rf "$env"
    "$python" -m venv "$env"
    "$env/bin/python" -m pip install -q --disable-pip-version-check "torch==$torch"
    "$env/bin/python" -m pip install -q --disable-pip-version-check -r requirements/lock.txt
    "$env/bin/python" -m pip install -q --disable-pip-version-check -r requirements/bench.txt
    "$env/bin/python" -m pip install -q --disable-pip-version-check --no-deps trl==1.16.0 -e .
    touch "$env/.ready"
fi
"$env/bin/python" -m "$package"
