#!/usr/bin/env bash
# Tests that the C example trains bit-identically to its C++ twin, on one rank and two, replicated
# and sharded; that it resumes from its checkpoints; and that its metrics are readable.
source "$(dirname "${BASH_SOURCE[0]}")/../support/cli.sh"

run() {  # arguments: RANKS PROGRAM ARGUMENTS...: its output in $work/output
  local ranks=$1
  shift
  timeout 120 mpirun --oversubscribe --bind-to none -np "$ranks" "$@" >"$work/output" 2>&1 ||
    fail "$* on $ranks ranks: exit code $?"
}

for ranks in 1 2; do
  for stage in 0 3; do
    [[ $ranks$stage != 13 ]] || continue
    run $ranks "$TWIN" $stage
    cp "$work/output" "$work/twin"
    run $ranks "$TRAIN_C" $stage
    [[ $(grep -c '^step .* | loss ' "$work/twin") -eq 60 ]] || fail "twin: expected 60 losses"
    cmp -s "$work/twin" "$work/output" || fail "stage $stage, $ranks ranks: losses differ"
  done
done

# Two ranks save; one rank resumes from the first checkpoint, with one row per step.
run 2 "$TRAIN_C" 1 "$work/run"
cp "$work/output" "$work/whole"
rm -r "$work/run/step_00000060"
run 2 "$TRAIN_C" 2 "$work/run"
tail -n 30 "$work/whole" | cmp -s - "$work/output" || fail "resumed: losses differ"
steps=$("$BIN_DIR/shale" metrics --csv "$work/run" 2>"$work/output" | wc -l)
[[ $steps -eq 61 ]] || fail "metrics: $steps lines, expected a header and 60 steps"
"$BIN_DIR/shale" ckpt verify "$work/run/step_00000060" >"$work/output" 2>&1 ||
  fail "ckpt verify: exit code $?"

finish
