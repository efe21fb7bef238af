#!/usr/bin/env bash
# Tests that a run with all memory-saving features trains as well as plain f32 on one rank: mean
# losses of steps 181 to 200 differ by at most 0.02. Takes minutes.
# Usage: test/long/loss_parity.sh BUILD_DIR [RANKS]
set -euo pipefail

train="$1/bin/train_lm"
ranks=${2:-4}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1

# Headers of the C++ standard library, as in quickstart.sh.
data=$(printf '#include <vector>\n' | g++ -x c++ -fsyntax-only -H - 2>&1 |
  sed -n 's|^\. \(/.*\)/vector$|\1|p')
flags=(--data "$data" --model nano --seq-len 128 --global-batch 16 --steps 200 --lr 2e-3
  --warmup-steps 20 --seed 1)

# run NAME RANKS FLAGS...
run() {
  local name=$1 n=$2
  shift 2
  timeout 1200 mpirun --oversubscribe --bind-to none -np "$n" "$train" "${flags[@]}" \
    --out "$work/$name" "$@" >"$work/$name.log" 2>&1 || { tail -n 20 "$work/$name.log"; exit 1; }
}

# mean NAME: mean loss of steps 181 to 200.
mean() {
  sed -n 's/.*"step": \([0-9]*\), "loss": \([^,]*\),.*/\1 \2/p' "$work/$1/metrics.jsonl" |
    awk '$1 > 180 { sum += $2; n++ } END { if (n != 20) exit 1; printf "%.6f", sum / n }'
}

run plain 1 --dtype fp32 --zero 0 --micro-batch 16
plain=$(mean plain)

# check NAME FLAGS...: runs with all memory-saving features and these flags.
check() {
  local name=$1
  shift
  run "$name" "$ranks" --threads 1 --dtype bf16 --zero 3 --micro-batch $((16 / ranks)) \
    --recompute full --offload-activations "$@"
  awk -v a="$plain" -v b="$(mean "$name")" -v n="$ranks" -v what="$*" 'BEGIN {
    d = b - a
    printf "mean loss of steps 181 to 200: %s plain, %s with everything on %d ranks (%s), difference %.6f\n",
      a, b, n, what, d
    exit !(d <= 0.02 && d >= -0.02)
  }'
}

check f32_gradients --offload params
check bf16_gradients --offload optimizer --grad-dtype bf16
