#!/bin/sh
# One seed: the finding appears in the faulty release, replays there, and is fixed in the later one.
set -eu
bin=.venv/bin
field() { sed -n "s/^$1 = \"\(.*\)\"/\1/p" "$2"; }
faulty=$(field faulty "$1") fixed=$(field fixed "$1") law=$(field law "$1") boundary=$(field boundary "$1")
out=$(mktemp)
status=0
"$bin/rl-sentinel" audit "$faulty" --law "$law" --boundary "$boundary" --level hazard --json "$out" >/dev/null || status=$?
[ "$status" -le 1 ] || { echo "audit of $faulty ended with $status"; exit 1; }
"$bin/python" - "$out" "$law" <<'EOF'
import json, sys
found = json.load(open(sys.argv[1]))["findings"]
assert any(f["law"] == sys.argv[2] for f in found), f"{sys.argv[2]} was not found"
for f in found:
    print(f["law"], f["boundary"], f"[{f['setting']}]", f["evidence"]["expectation"]["sentence"])
EOF
status=0
"$bin/rl-sentinel" replay "$out" "$faulty" || status=$?
[ "$status" -eq 1 ] || { echo "expected reproduced on $faulty"; exit 1; }
if [ -n "$fixed" ]; then
    "$bin/rl-sentinel" replay "$out" "$fixed" || { echo "expected fixed on $fixed"; exit 1; }
fi
rm -f "$out"
