#!/usr/bin/env bash
# Products of fp8 train about as well as those of bf16: the validation loss of a model of 10 million
# parameters after 1,000 steps of 4,096 tokens of the headers of C++ is at most 0.5% above bf16's.
# Takes hours on two cores; test/cli/fp8.sh is its short twin.
# Usage: test/long/fp8.sh BUILD_DIR [STEPS [FLAG...]]     other steps, flags of another model
# In the environment FOLDER keeps the runs there, and goes on with them when it is started again
# after a stop.
set -euo pipefail

source "$(dirname "${BASH_SOURCE[0]}")/../support/long_training.sh"

# loss DTYPE: of validation, after the last step.
loss() {
  "$train" "${model[@]}" --data "$data" --data-cache "$work/cache" --seq-len 256 \
    --global-batch 16 --micro-batch 16 --threads 2 --dtype "$1" --steps "$steps" \
    --warmup-steps $((steps / 20)) --lr 1e-3 --eval-every "$steps" --seed 1 --quiet \
    --save-every $(((steps + 19) / 20)) --keep 1 --resume auto --out "$work/$1" >>"$work/$1.log" \
    2>&1 || { tail -n 20 "$work/$1.log" >&2; exit 1; }
  sed -nE 's/.*"val_loss": ([0-9.]+).*/\1/p' "$work/$1/metrics.jsonl" | tail -n 1
}

bf16=$(loss bf16)
fp8=$(loss fp8)
awk -v a="$bf16" -v b="$fp8" 'BEGIN {
  d = 100 * (b - a) / a
  printf "bf16: %s; fp8: %s, %+.2f%%, at most +0.5%%\n", a, b, d
  exit !(a > 0 && b > 0 && d <= 0.5)
}'
