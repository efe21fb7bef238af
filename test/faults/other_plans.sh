#!/usr/bin/env bash
# One rank of a run over several axes gets other options than the rest, on 4 and on 8 ranks. The
# error names the rank and the difference, before any training.
source "$(dirname "${BASH_SOURCE[0]}")/../support/cli.sh"

output=$work/output
for i in $(seq 2000); do echo "line $i of a text that is long enough"; done >"$work/text.txt"
flags=(--data "$work/text.txt" --layers 2 --width 32 --heads 4 --seq-len 32 --micro-batch 1
  --global-batch 8 --device cpu --threads 1 --no-save --steps 2)

# other_plan VICTIM RANKS FLAG... -- FLAG...: rank VICTIM runs with the second flags.
other_plan() {
  local victim=$1 ranks=$2 all=() other=()
  shift 2
  while [[ $1 != -- ]]; do all+=("$1"); shift; done
  shift
  other=("$@")
  timeout 60 mpirun --oversubscribe --bind-to none \
    -np "$victim" "$BIN_DIR/train_lm" "${flags[@]}" --out "$work/run" "${all[@]}" : \
    -np 1 "$BIN_DIR/train_lm" "${flags[@]}" --out "$work/run" "${other[@]}" : \
    -np $((ranks - victim - 1)) "$BIN_DIR/train_lm" "${flags[@]}" --out "$work/run" "${all[@]}" \
    >"$output" 2>&1
  local code=$?
  [[ $code -eq 76 ]] || fail "rank $victim of $ranks with ${other[*]}: exit code $code, expected 76"
  grep -q "^error: .*rank $victim" "$output" ||
    fail "rank $victim of $ranks with ${other[*]}: no error names it"
  if grep -q '^step ' "$output"; then fail "rank $victim of $ranks with ${other[*]}: trained"; fi
}

mixture=(--model moe-nano)
other_plan 2 4 --pipeline 2 --tensor 2 -- --context 2 --tensor 2
other_plan 1 4 --tensor 2 --ranks-per-process 1 -- --tensor 4 --ranks-per-process 2
other_plan 5 8 "${mixture[@]}" --pipeline 2 --expert 4 -- "${mixture[@]}" --pipeline 2 --expert 2
other_plan 6 8 --pipeline 2 --context 2 --tensor 2 -- --pipeline 2 --context 2 --tensor 2 \
  --pipeline-schedule gpipe
finish
