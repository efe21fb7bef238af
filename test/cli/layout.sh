#!/usr/bin/env bash
# Tests shale plan --layouts --write: it finds a layout, for a cluster file or from measurements of
# this machine, and writes a file that train_lm --config accepts.
source "$(dirname "${BASH_SOURCE[0]}")/../support/cli.sh"
shown=("$work/stdout" "$work/stderr")

for i in $(seq 2000); do echo "line $i of a text that is long enough"; done >"$work/text.txt"
clusters=$(cd "$(dirname "${BASH_SOURCE[0]}")/../../deploy/clusters" && pwd)
model=(--layers 2 --width 64 --heads 2 --seq-len 32 --threads 1)
common=(--data "$work/text.txt" --global-batch 8)

# plan RANKS FLAGS...: searches and writes layout.json; sets `code` to the exit code.
plan() {
  local ranks=$1
  shift
  rm -f "$work/layout.json"
  "${start[@]}" "$BIN_DIR/shale" plan "${model[@]}" "${common[@]}" --ranks "$ranks" --layouts \
    --write "$work/layout.json" "$@" >"$work/stdout" 2>"$work/stderr"
  code=$?
}
start=()
# refuses CODE WORDS RANKS FLAGS...: the search ends with exit code CODE and an error with WORDS.
refuses() {
  plan "${@:3}"
  [[ $code -eq $1 ]] || fail "${*:3}: exit code $code, expected $1"
  grep -qF -- "$2" "$work/stderr" || fail "${*:3}: no '$2'"
  [[ ! -e $work/layout.json ]] || fail "${*:3}: a layout was written"
}
losses() { grep -o '"loss":[^,]*' "$work/$1/metrics.jsonl"; }

# ---- For a cluster file: a run accepts the layout, as the file or as flags ----
plan 4 --cluster "$clusters/cpu_host.json"
[[ $code -eq 0 ]] || fail "4 ranks: exit code $code"
grep -qF "wrote the fastest layout to $work/layout.json" "$work/stdout" ||
  fail "4 ranks: no word of the file"
for option in '"layers": 2' '"global_batch": 8' '"micro_batch": ' '"recompute": "'; do
  grep -qF -- "$option" "$work/layout.json" || fail "4 ranks: no $option"
done
grep -qE 'ranks|cluster|layouts' "$work/layout.json" && fail "4 ranks: options of the plan are written"
flags=$(sed -nE 's/^ .* ms .*%  .*[iB0-9]  (--[^;]*);.*$/\1/p' "$work/stdout" | head -n 1)
[[ -n $flags ]] || flags=$(grep -m 1 ' ms ' "$work/stdout" | grep -oE -- '--[^;]*')
run_training 4 filed --steps 4 --config "$work/layout.json"
[[ $code -eq 0 ]] || fail "filed: exit code $code"
# shellcheck disable=SC2086
run_training 4 given --steps 4 "${model[@]}" $flags
[[ $code -eq 0 ]] || fail "$flags: exit code $code"
[[ -n $(losses given) && $(losses given) == $(losses filed) ]] || fail "$flags: other losses"
run_training 4 filed --steps 4 --config "$work/layout.json" --resume auto
[[ $code -eq 0 ]] || fail "resume: exit code $code"

# A search that stops early prints the best layout so far, and that it has stopped.
plan 2 --cluster "$clusters/cpu_host.json" --search-nodes 2
[[ $code -eq 0 && -e $work/layout.json ]] || fail "2 plans: exit code $code, or no layout"
grep -q 'were not evaluated' "$work/stdout" || fail "2 plans: no word of what is left"
grep -qE '^2 of [0-9]+ layouts planned; fastest .* ms: --' "$work/stderr" || fail "2 plans: no progress"

# ---- From measurements of these CPUs ----
start=(timeout 120 mpirun --oversubscribe --bind-to none -np 2)
plan 2 --cluster here
[[ $code -eq 0 ]] || fail "here: exit code $code"
run_training 2 measured --steps 2 --config "$work/layout.json"
[[ $code -eq 0 ]] || fail "measured: exit code $code"
refuses 64 'use mpirun -np 4' 4 --cluster here
start=()

# ---- Incompatible options ----
refuses 64 '--layouts chooses --zero itself' 2 --zero 1 --cluster "$clusters/cpu_host.json"
refuses 64 '--layouts chooses --pipeline itself' 2 --pipeline 2 --cluster "$clusters/cpu_host.json"
refuses 64 '--write has no effect without --cluster' 2
refuses 66 'none.json' 2 --cluster "$work/none.json"
refuses 71 'layouts fits in' 2 --device-memory 64KiB --cluster "$clusters/cpu_host.json"
run_training 1 refused --parallel auto
[[ $code -eq 64 ]] && grep -qF 'use shale plan --layouts --write FILE' "$work/stderr" ||
  fail "--parallel auto: exit code $code, expected 64 and what to use"
finish
