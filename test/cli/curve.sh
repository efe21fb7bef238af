#!/usr/bin/env bash
# docs/curve.awk draws every step and every validation of a metrics file, and refuses a file that
# has none.
source "$(dirname "${BASH_SOURCE[0]}")/../support/cli.sh"
shown=("$work/curve.svg")

curve=$(cd "$(dirname "${BASH_SOURCE[0]}")/../../docs" && pwd)/curve.awk

cat >"$work/metrics.jsonl" <<'ROWS'
{"step": 1, "loss": 5.5, "loss_bits": "40b00000", "grad_norm": 2.5, "lr": 0.001}
{"step": 2, "loss": null, "loss_bits": "7fc00000", "grad_norm": null, "lr": 0.001}
{"step": 3, "loss": 2.5, "loss_bits": "40200000", "grad_norm": 1e-05, "lr": 0.001}
{"step": 3, "val_loss": 3.5}
{"step": 4, "lo
ROWS
awk -f "$curve" "$work/metrics.jsonl" >"$work/curve.svg" || fail "exit code $?"
[[ $(grep -c '<circle' "$work/curve.svg") == 1 ]] || fail 'one validation, another number of dots'
# The curve from step 1, loss 5.5 to step 3, loss 2.5 spans the whole picture.
grep -q 'd="M56.0 32.0L656.0 292.0"' "$work/curve.svg" || fail 'another line'
[[ $(tail -n 1 "$work/curve.svg") == '</svg>' ]] || fail 'the picture has no end'

head -n 1 "$work/metrics.jsonl" | awk -f "$curve" >/dev/null 2>"$work/stderr"
[[ $? == 65 ]] || fail 'one step: expected exit code 65'
grep -q 'found 1 steps' "$work/stderr" || fail 'one step: another message'

finish
