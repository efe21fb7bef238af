#!/usr/bin/env bash
# Tests the quality of fp8 training: after 1,000 steps of 4,096 tokens of C++ headers, the
# validation loss of a 10M-parameter model is at most 0.5% above that of bf16. Losses are means of
# two seeds, because rounding differences grow with the steps and a single seed says little. Takes
# hours on two cores; test/cli/fp8.sh is the short version.
# Usage: test/long/fp8.sh BUILD_DIR [STEPS [FLAG...]]     other steps, flags for another model
# The environment variable FOLDER names a folder for the runs, which are resumed if started again.
set -euo pipefail

source "$(dirname "${BASH_SOURCE[0]}")/../support/long_training.sh"

# loss DTYPE SEED: validation loss after the last step.
loss() {
  "$train" "${model[@]}" --data "$data" --data-cache "$work/cache" --seq-len 256 \
    --global-batch 16 --micro-batch 16 --threads 2 --dtype "$1" --steps "$steps" \
    --warmup-steps $((steps / 20)) --lr 1e-3 --eval-every "$steps" --seed "$2" --quiet \
    --save-every $(((steps + 19) / 20)) --keep 1 --resume auto --out "$work/$1-$2" \
    >>"$work/$1-$2.log" 2>&1 || { tail -n 20 "$work/$1-$2.log" >&2; exit 1; }
  sed -nE 's/.*"val_loss": ([0-9.]+).*/\1/p' "$work/$1-$2/metrics.jsonl" | tail -n 1
}

pairs=""
for seed in 1 2; do
  pairs+="$(loss bf16 "$seed") $(loss fp8 "$seed")"$'\n'
done
awk 'NF != 2 || !($1 > 0 && $2 > 0) { bad = 1; exit 1 }
  { d = 100 * ($2 - $1) / $1; sum += d
    printf "seed %d: bf16 %s; fp8 %s, %+.2f%%\n", NR, $1, $2, d }
  END {
    if (bad || NR == 0) exit 1
    printf "mean of %d seeds: %+.2f%%, at most +0.5%%\n", NR, sum / NR
    exit !(sum / NR <= 0.5)
  }' <<<"${pairs%$'\n'}"
