#!/usr/bin/env bash
# Experts that are dealt out over ranks: losses of ranks that have all, to rounding; checkpoints and
# published weights that know nothing of it; errors that say what fits.
source "$(dirname "${BASH_SOURCE[0]}")/../support/cli.sh"
shown=("$work/stdout" "$work/stderr")

for i in $(seq 2000); do echo "line $i of a text that is long enough"; done >"$work/text.txt"
common=(--data "$work/text.txt" --model moe-nano --layers 2 --width 32 --heads 4 --seq-len 32
  --global-batch 4 --micro-batch 1 --device cpu --threads 1 --steps 6 --keep 0)

losses() { sed -nE 's/^\{"step": [0-9]+, "loss": ([0-9.]+).*/\1/p' "$work/$1/metrics.jsonl"; }
# follows NAME WANT LINES: it ended well, with the last so many losses of WANT, to rounding.
follows() {
  [[ $code -eq 0 ]] || { fail "$1: exit code $code"; return; }
  paste <(losses "$1" | tail -n "$3") <(losses "$2" | tail -n "$3") |
    awk -v want="$3" '{ d = $1 - $2; if (d < 0) d = -d; if (d > 2e-4) bad = 1 }
      END { exit NR != want || bad }' || fail "$1 does not follow $2"
}

run_training 2 all --save-every 3 --export "$work/hf_all"
[[ $code -eq 0 ]] || fail "all: exit code $code"
run_training 2 dealt --expert 2 --save-every 3 --check-replicas 2 --report-every 3
follows dealt all 6
grep -q '"comm_exposed_share_expert_' "$work/dealt/metrics.jsonl" || fail "dealt: no word of the axis"
run_training 4 four --expert 2 --zero 3 --resume "$work/all/checkpoints/step_00000003"
follows four all 3
run_training 2 back --zero 1 --resume "$work/dealt/checkpoints/step_00000003"
follows back all 3
run_training 2 again --expert 2 --steps 0 --init "$work/hf_all" --export "$work/hf_again" --no-save
[[ $code -eq 0 ]] || fail "again: exit code $code"
cmp -s "$work/hf_all/model.safetensors" "$work/hf_again/model.safetensors" ||
  fail "weights changed on their way through two ranks"

# refuses WORDS RANKS FLAGS...
refuses() {
  local words=$1 ranks=$2
  shift 2
  run_training "$ranks" refused --no-save "$@"
  [[ $code -eq 64 ]] && grep -qF -- "$words" "$work/stdout" "$work/stderr" ||
    fail "$*: exit code $code, want 64 and \"$words\""
}
refuses "--expert 3: want a divisor of the 2 ranks" 2 --expert 3
refuses "no mixtures of experts" 2 --expert 2 --model llama-nano
refuses "want --expert 1" 2 --expert 2 --reproducible
refuses "such as adamw" 2 --expert 2 --optimizer muon
finish
