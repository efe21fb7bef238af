#!/usr/bin/env bash
# Tests that methods for slow links train about as well as plain ones. After 1,000 steps of 4,096
# tokens of C++ headers, for a 10M-parameter model, validation losses are compared with AdamW's:
# those of 1-bit Adam and of quantized ZeRO-3 are at most 1% higher, and those of warm-started local
# steps at most 3%. Takes hours on two cores.
# Usage: test/long/slow_links.sh BUILD_DIR [STEPS [FLAG...]]     other steps, flags for another
# model
# Environment variables:
#   FOLDER   folder for the runs, which are resumed if started again
#   REPLICAS number of replicas of two ranks each (default 2); 0: two replicas of one rank each
#   DTYPE    dtype of GEMMs (default fp32)
#   EVERY    steps between outer steps (default 10)
#   METHODS  methods to run, in order, adamw first (default all)
set -euo pipefail

source "$(dirname "${BASH_SOURCE[0]}")/../support/long_training.sh"
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1

replicas=${REPLICAS:-2}
ranks=$((replicas > 0 ? 2 * replicas : 2))
hybrid=(--zero 1 --shard-ranks $((replicas > 0 ? 2 : 1)))
warm=$((steps * 15 / 100))
# With few outer steps, a low momentum is best: docs/explanation/parallelism.md, "Local steps".
outer=(--outer-every "${EVERY:-10}" --outer-start "$warm" --outer-momentum 0.5)
flags=("${model[@]}" --data "$data" --data-cache "$work/cache" --seq-len 256 --global-batch 16
  --micro-batch 4 --threads 1 --dtype "${DTYPE:-fp32}" --steps "$steps"
  --warmup-steps $((steps / 20)) --lr 1e-3 --eval-every "$steps" --seed 1 --quiet --timeout 80000
  --save-every $(((steps + 19) / 20)) --keep 1 --resume auto)

# loss NAME FLAG...: validation loss after the last step.
loss() {
  local out="$work/$1"
  shift
  mpirun --oversubscribe --bind-to none -np "$ranks" "$train" "${flags[@]}" --out "$out" "$@" \
    >>"$out.log" 2>&1 || { tail -n 20 "$out.log" >&2; exit 1; }
  sed -nE 's/.*"val_loss": ([0-9.]+).*/\1/p' "$out/metrics.jsonl" | tail -n 1
}

failures=0
# check LIMIT NAME FLAG...: the loss is at most LIMIT percent above AdamW's.
declare -A losses
check() {
  local limit=$1 name=$2
  shift 2
  losses[$name]=$(loss "$name" "$@")
  awk -v a="${losses[adamw]}" -v b="${losses[$name]}" -v limit="$limit" -v name="$name" 'BEGIN {
    d = 100 * (b - a) / a
    printf "%s: %s, %+.2f%% of adamw, at most %s%%\n", name, b, d, limit
    exit !(d <= limit)
  }' || failures=$((failures + 1))
}

run_method() {
  case $1 in
    adamw) check 0 adamw "${hybrid[@]}" ;;
    one_bit_adam)
      check 1 "$1" "${hybrid[@]}" --optimizer 1bit-adam --freeze-step "$warm" ;;
    local_steps) check 3 "$1" "${hybrid[@]}" "${outer[@]}" ;;
    codes) check 1 "$1" --zero 3 --quantize-gathers 8 --quantize-reductions 4 ;;
    local_steps_in_turn) check 3 "$1" "${hybrid[@]}" "${outer[@]}" --outer-streaming ;;
    *) echo "slow_links.sh: $1 is no method here" >&2; exit 64 ;;
  esac
}
for method in ${METHODS:-adamw one_bit_adam local_steps codes local_steps_in_turn}; do
  run_method "$method"
done
exit $((failures > 0))
