#!/usr/bin/env bash
# What spares slow links trains about as well as AdamW: the validation losses of 1-bit Adam, 0/1 Adam
# and ZeRO-3 in codes are at most 1% above that of AdamW, of local steps, started warm, at most 3%,
# for a model of 10 million parameters after 1,000 steps of 4,096 tokens of the headers of C++. Takes
# hours on two cores.
# Usage: test/long/slow_links.sh BUILD_DIR [STEPS [FLAG...]]     other steps, flags of another model
set -euo pipefail

train="$1/bin/train_lm"
steps=${2:-1000}
model=("${@:3}")
[[ ${#model[@]} -gt 0 ]] || model=(--layers 6 --width 384 --heads 6)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1

# The C++ standard library's headers, as in quickstart.sh.
data=$(printf '#include <vector>\n' | g++ -x c++ -fsyntax-only -H - 2>&1 |
  sed -n 's|^\. \(/.*\)/vector$|\1|p')
flags=("${model[@]}" --data "$data" --data-cache "$work/cache" --seq-len 256 --global-batch 16
  --micro-batch 4 --threads 1 --dtype fp32 --steps "$steps" --warmup-steps $((steps / 20)) --lr 1e-3
  --eval-every "$steps" --seed 1 --no-save --quiet)

# loss NAME FLAG...: of validation, of four ranks after the last step.
loss() {
  local out="$work/$1"
  shift
  mpirun --oversubscribe --bind-to none -np 4 "$train" "${flags[@]}" --out "$out" "$@" \
    >"$out.log" 2>&1 || { tail -n 20 "$out.log" >&2; exit 1; }
  sed -nE 's/.*"val_loss": ([0-9.]+).*/\1/p' "$out/metrics.jsonl" | tail -n 1
}

adamw=$(loss adamw --zero 1 --shard-ranks 2)
echo "AdamW: $adamw"
failures=0
# check LIMIT NAME FLAG...: how far above AdamW's, in percent.
check() {
  local limit=$1 name=$2 got
  shift 2
  got=$(loss "$name" "$@")
  awk -v a="$adamw" -v b="$got" -v limit="$limit" -v name="$name" 'BEGIN {
    d = 100 * (b - a) / a
    printf "%s: %s, %+.2f%%, at most %s%%\n", name, b, d, limit
    exit !(d <= limit)
  }' || failures=$((failures + 1))
}
hybrid=(--zero 1 --shard-ranks 2)
warm=$((steps * 15 / 100))
check 1 one_bit_adam "${hybrid[@]}" --optimizer 1bit-adam --freeze-step "$warm" --clip-replica
check 1 zero_one_adam "${hybrid[@]}" --optimizer 01-adam --freeze-step "$warm" --clip-replica
check 1 codes --zero 3 --quantize-gathers 8 --quantize-reductions 4
check 3 local_steps "${hybrid[@]}" --outer-every 20 --outer-start "$warm"
check 3 local_steps_in_turn "${hybrid[@]}" --outer-every 20 --outer-start "$warm" --outer-streaming
exit $((failures > 0))
