#!/usr/bin/env bash
# --parallel auto: a layout that rank 0 finds and all ranks have, kept by runs that go on.
source "$(dirname "${BASH_SOURCE[0]}")/../support/cli.sh"
shown=("$work/stdout" "$work/stderr")

for i in $(seq 2000); do echo "line $i of a text that is long enough"; done >"$work/text.txt"
clusters=$(cd "$(dirname "${BASH_SOURCE[0]}")/../../deploy/clusters" && pwd)
common=(--data "$work/text.txt" --layers 2 --width 64 --heads 2 --seq-len 32 --threads 1
  --global-batch 8 --parallel auto)

says() { grep -qF -- "$1" "$work/stdout" || fail "no '$1'"; }
# refuses CODE WORDS RANKS FLAGS...
refuses() {
  local want=$1 words=$2 ranks=$3
  shift 3
  run_training "$ranks" refused --steps 1 "$@"
  [[ $code -eq $want ]] || fail "$*: exit code $code, want $want"
  grep -qF -- "$words" "$work/stderr" || fail "$*: no '$words'"
  [[ ! -e $work/refused ]] || fail "$*: a folder was made"
}
# What config.json of a run has of the layout.
layout() {
  grep -E '"(parallel|tensor|context|pipeline|zero|shard_ranks|micro_batch|recompute)"' \
    "$work/$1/config.json"
}

# ---- Found by what this machine measures, or by a file ----
run_training 2 measured --steps 4
[[ $code -eq 0 ]] || fail "2 ranks: exit code $code"
says '--parallel auto: '
grep -qF '"parallel": "auto:2"' "$work/measured/config.json" || fail "2 ranks: not in config.json"
run_training 4 filed --steps 4 --cluster "$clusters/cpu_host.json"
[[ $code -eq 0 ]] || fail "4 ranks: exit code $code"
flags=$(sed -n 's/^.*--parallel auto: \(.*\), planned .*$/\1/p' "$work/stdout")
[[ $flags == *"--micro-batch "*" --global-batch 8" ]] || fail "4 ranks: flags are '$flags'"

# The flags are those of the run: given one by one they make the same losses, to the bit.
common_auto=("${common[@]}")
common=(--data "$work/text.txt" --layers 2 --width 64 --heads 2 --seq-len 32 --threads 1)
# shellcheck disable=SC2086 # flags are words
run_training 4 given --steps 4 $flags
[[ $code -eq 0 ]] || fail "$flags: exit code $code"
losses() { grep -o '"loss":[^,]*' "$work/$1/metrics.jsonl"; }
[[ -n $(losses given) && $(losses given) == $(losses filed) ]] || fail "$flags: other losses"
common=("${common_auto[@]}")

# A search that ends early gives the best layout so far, and says so.
run_training 2 early --steps 1 --cluster "$clusters/cpu_host.json" --search-dry-runs 9
[[ $code -eq 0 ]] || fail "9 dry runs: exit code $code"
grep -q 'uses the best layout so far; [0-9]* of [0-9]* layouts were not evaluated' \
  "$work/stdout" "$work/stderr" || fail "9 dry runs: no word of what is left"

# ---- Runs that go on ----
before=$(layout filed)
sed 's/"node_gbytes_per_s": 14/"node_gbytes_per_s": 0.001/' "$clusters/cpu_host.json" \
  >"$work/slow.json"
run_training 4 filed --steps 4 --resume auto --cluster "$work/slow.json"
[[ $code -eq 0 ]] || fail "resume: exit code $code"
says 'as the checkpoint has it'
[[ $(layout filed) == "$before" ]] || fail "resume: another layout"
run_training 2 filed --steps 4 --resume auto
[[ $code -eq 0 ]] || fail "resume on 2 ranks: exit code $code"
grep -qF '"parallel": "auto:2"' "$work/filed/config.json" || fail "2 of 4 ranks: not chosen anew"

# ---- What cannot be ----
refuses 64 '--parallel auto with --zero' 2 --zero 1
refuses 64 '--parallel auto with --pipeline' 2 --pipeline 2
refuses 64 'want a file of a cluster of CPUs' 2 --device cpu --cluster "$clusters/h100.json"
refuses 66 'none.json' 2 --cluster "$work/none.json"
refuses 71 'layouts fits in' 2 --device-memory 64KiB --cluster "$clusters/cpu_host.json"
refuses 1 'found no layout that fits' 2 --search-dry-runs 1 --cluster "$clusters/cpu_host.json"
refuses 64 '--search-dry-runs needs --parallel auto' 1 --parallel none --search-dry-runs 1
refuses 64 'want none or auto' 1 --parallel automatic
refuses 64 'want both' 1 --parallel none --cluster "$clusters/cpu_host.json"
finish
