#!/usr/bin/env bash
# Tests training over NCCL on emulated GPUs, with the stand-in for NCCL that moves data between
# processes. LD_LIBRARY_PATH must contain it. Losses and gradient norms must match those of CPU
# ranks.
source "$(dirname "${BASH_SOURCE[0]}")/../support/cli.sh"

for i in $(seq 2000); do echo "line $i of a text that is long enough"; done >"$work/text.txt"
common=(--data "$work/text.txt" --layers 4 --width 16 --heads 2 --seq-len 16 --micro-batch 1
  --global-batch 8 --steps 3 --threads 1 --eval-every 0 --timeout 120)

# same NAME RANKS FLAGS...: checks that both runs agree within rounding. They add a few hundred fp32
# numbers in different orders.
same() {
  local name=$1 ranks=$2
  shift 2
  trains "$name.cpu" "$ranks" --device cpu "$@"
  trains "$name.emu" "$ranks" --device emu --comm nccl "$@"
  for run in cpu emu; do
    grep -oE '"(loss|grad_norm)": [^,}]*' "$work/$name.$run/metrics.jsonl" >"$work/$name.$run.values"
  done
  paste "$work/$name.cpu.values" "$work/$name.emu.values" | awk '
    { difference = ($2 - $4) / $2; if (difference < 0) difference = -difference }
    difference > 1e-5 { print $0; bad = 1 }
    END { exit bad || NR != 6 }' || fail "$name: other losses, or none"
}

same data 2 --zero 1
same pipeline 8 --pipeline 4 --zero 1
# CUDA's 8 hardware queues are enough for a pipeline. With a single queue, streams wait for each
# other, which must be detected.
chunks=(--pipeline 2 --pipeline-chunks 2 --pipeline-schedule interleaved --zero 1)
SHALE_EMU_QUEUES=8 same queues 4 "${chunks[@]}"
SHALE_EMU_QUEUES=1 run_training 4 one_queue --device emu --comm nccl "${chunks[@]}" \
  --timeout 1
[[ $code -ne 0 ]] && grep -q 'waited 10 s' "$work/stderr" || fail "one queue: $code, no time-out"

finish
