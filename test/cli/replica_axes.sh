#!/usr/bin/env bash
# Tests options that reduce traffic between replicas, combined with model axes inside a replica.
# Losses match runs with unsharded models. Runs resume with the same bits, even on another layout.
source "$(dirname "${BASH_SOURCE[0]}")/../support/cli.sh"
shown=("$work/stdout" "$work/stderr")

for i in $(seq 2000); do echo "line $i of a text that is long enough"; done >"$work/text.txt"
common=(--data "$work/text.txt" --width 32 --heads 4 --seq-len 32 --global-batch 8 --micro-batch 1
  --device cpu --threads 1 --steps 8 --keep 0 --zero 1 --lr 1e-3)

# rows OUT FROM: prints step and loss bits of steps after FROM.
rows() { sed -nE 's/^\{"step": ([0-9]+), .*"loss_bits": ("[0-9a-f]*").*/\1 \2/p' \
  "$work/$1/metrics.jsonl" | awk -v from="$2" '$1 > from'; }
losses() { sed -nE 's/^\{"step": [0-9]+, "loss": ([0-9.]+).*/\1/p' "$work/$1/metrics.jsonl"; }

# check NAME MODEL AXIS SHARDS FLAGS...: runs two replicas, each sharded along an axis, on four
# ranks.
check() {
  local name=$1 axis=$3 shards=$4 model slack=2e-3
  # Sign quantization uses blocks that start at parameters. Sharding the experts moves these blocks.
  [[ $name == one_bit_expert ]] && slack=5e-2
  read -ra model <<<"$2"
  shift 4
  run_training 2 "$name.plain" "${model[@]}" --shard-ranks 1 "$@" --no-save
  [[ $code -eq 0 ]] || { fail "$name: two ranks: exit code $code"; return; }
  run_training 4 "$name" "${model[@]}" "--$axis" 2 --shard-ranks "$shards" "$@" --save-every 4
  [[ $code -eq 0 ]] || { fail "$name with --$axis: exit code $code"; return; }
  paste <(losses "$name.plain") <(losses "$name") | awk -v slack="$slack" '{ d = $1 - $2
    if (d < 0) d = -d; if (d > slack) bad = 1 } END { exit NR != 8 || bad }' || fail "$name with --$axis follows nobody"
  run_training 4 "$name.again" "${model[@]}" "--$axis" 2 --shard-ranks "$shards" "$@" --no-save \
    --resume "$work/$name/checkpoints/step_00000004"
  [[ $code -eq 0 && $(rows "$name.again" 4) == $(rows "$name" 4) ]] ||
    fail "$name with --$axis goes on otherwise: exit code $code"
  # Resumes on a layout with other shards: masters, optimizer states and error feedback are
  # unchanged.
  run_training 2 "$name.other" "${model[@]}" --shard-ranks 1 "$@" --no-save \
    --resume "$work/$name/checkpoints/step_00000004"
  [[ $code -eq 0 ]] || { fail "$name without --$axis: exit code $code"; return; }
  paste <(losses "$name" | tail -n 4) <(losses "$name.other" | tail -n 4) | awk -v slack="$slack" '{ d = $1 - $2
    if (d < 0) d = -d; if (d > slack) bad = 1 } END { exit NR != 4 || bad }' ||
    fail "$name goes elsewhere without --$axis"
  rm -rf "${work:?}/$name"*
}

dense="--layers 2" mixture="--model moe-nano --layers 1 --experts 4 --active-experts 2"
for way in "local --outer-every 3 --outer-start 1" \
  "one_bit --optimizer 1bit-adam --freeze-step 3"; do
  read -ra flags <<<"$way"
  for axis in tensor pipeline context; do
    check "${flags[0]}_$axis" "$dense" "$axis" 1 "${flags[@]:1}"
  done
  check "${flags[0]}_expert" "$mixture" expert 2 "${flags[@]:1}"
done

finish
