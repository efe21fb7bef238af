#!/usr/bin/env bash
# Runs train_lm on emulated GPUs of a machine with two sockets. Hierarchical sums, within each NUMA
# node and then across nodes, give the losses of flat sums over all ranks.
source "$(dirname "${BASH_SOURCE[0]}")/../support/cli.sh"
shown=("$work/stdout" "$work/stderr")

seq 1 4000 >"$work/text"
common=(--data "$work/text" --device emu:86 --layers 1 --width 32 --heads 2 --seq-len 16
  --micro-batch 1 --global-batch 4 --steps 2 --eval-every 0 --sample-tokens 0 --threads 1 --no-save)
bits() { grep -o '"loss_bits":[^,]*' "$work/$1/metrics.jsonl"; }
said() { grep -qF -- "$1" "$work/stdout"; }

for bus in 17 18; do
  add_gpu "$work/machine" pci0000:16/0000:16:01.0/0000:$bus:00.0 0 0 16 - 'RTX 3090'
done
for bus in ad ae; do
  add_gpu "$work/machine" pci0000:ac/0000:ac:01.0/0000:$bus:00.0 1 1 16 - 'RTX 3090'
done
export SHALE_MACHINE=$work/machine
run_training 4 nodes --zero 2
[[ $code -eq 0 ]] || fail "by GPUs' places: exit code $code"
said 'within 2 NUMA nodes of 2 ranks, then between nodes' || fail 'not by NUMA nodes'
run_training 4 alike --zero 2 --numa-ranks 1
[[ $code -eq 0 ]] || fail "--numa-ranks 1: exit code $code"
said 'NUMA nodes' && fail '--numa-ranks 1: by NUMA nodes'
[[ -n $(bits nodes) && $(bits nodes) == "$(bits alike)" ]] || fail 'losses differ'
unset SHALE_MACHINE

run_training 4 asked --zero 0 --numa-ranks 2
[[ $code -eq 0 && $(bits asked) == "$(bits alike)" ]] || fail "--numa-ranks 2: exit code $code"
said 'within 2 NUMA nodes of 2 ranks' || fail '--numa-ranks 2: not by NUMA nodes'

# Trains on CPUs with ZeRO-3: losses must have the bits of one rank.
for ranks in 1 4; do
  run_training $ranks tree$ranks --device cpu --reproducible --zero 3 --numa-ranks $((ranks / 2))
  [[ $code -eq 0 ]] || fail "--reproducible on $ranks ranks: exit code $code"
done
[[ $(bits tree1) == "$(bits tree4)" ]] || fail '--reproducible: losses differ from those of one rank'
grep -qE 'to other nodes [0-9.]+ [KM]iB' "$work/stdout" || fail 'nothing is said of bytes between nodes'

run_training 3 refused --global-batch 3 --numa-ranks 2
[[ $code -eq 64 ]] || fail "two of three ranks: exit code $code"
grep -q 'error: --numa-ranks: expected a power of two below 3 that divides the 3 ranks, found 2' \
  "$work/stderr" || fail 'two of three ranks: no such error'
[[ -e $work/refused/metrics.jsonl ]] && fail 'a refused run has left files'

finish
