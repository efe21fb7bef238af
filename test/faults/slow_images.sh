#!/usr/bin/env bash
# Reads images from slow storage. The metrics and the end of a run must report that data is the
# bottleneck, and more workers must remove it. With fast storage and two workers, ranks must not
# wait for data.
source "$(dirname "${BASH_SOURCE[0]}")/../support/cli.sh"
shown=("$work/stdout" "$work/stderr")
program=train_image
[[ -n ${FAULT_LIBRARY:-} ]] || { echo "skipped: no library that makes the disk slow"; exit 4; }

mkdir -p "$work/folder/a" "$work/folder/b"
for i in {1..16}; do
  for class in a b; do printf "$png_pixel" >"$work/folder/$class/$i.png"; done
done
common=(--data "$work/folder" --val-fraction 0 --model vit-nano --pixels 32 --threads 1
  --micro-batch 8 --global-batch 8 --steps 10 --no-save --timeout 60)

# waits OUT: prints the percentage of its time that rank 0 waited for batches. This is the median
# over all steps but the first, which ignores steps that other load delays.
waits() {
  sed -nE 's/^\{"step": ([0-9]+), .*"step_ms": ([0-9.]+).*"data_wait_ms": ([0-9.]+).*/\1 \2 \3/p' \
    "$work/$1/metrics.jsonl" |
    awk '$1 > 1 { print 100 * $3 / $2 }' | sort -g |
    awk '{ share[NR] = $1 } END { printf "%d", (NR == 9 ? share[5] : -1) }'
}

run_training 1 near --workers 2
[[ $code -eq 0 ]] || fail "near: exit code $code"
near=$(waits near)
[[ $near -ge 0 && $near -lt 10 ]] || fail "near: waited $near% of the time, expected less than 10"

export SHALE_FAULT_UNDER=$work/folder SHALE_FAULT_DELAY_MS=150 LD_PRELOAD=$FAULT_LIBRARY
run_training 1 far --workers 1
[[ $code -eq 0 ]] || fail "far: exit code $code"
far=$(waits far)
[[ $far -gt 50 ]] || fail "far: waited $far% of the time, expected more than 50"
grep -Eq 'data loading limits the speed: [0-9]+% of the time .*--workers 2 or more may help' "$work/stdout" ||
  fail "far: no word of the limit"
run_training 1 helped --workers 8
[[ $code -eq 0 ]] || fail "helped: exit code $code"
helped=$(waits helped)
[[ $helped -lt $((far * 3 / 4)) ]] || fail "helped: waited $helped% of the time, $far% with one worker"

finish "waited $near%, of slow storage $far%, with more workers $helped%"
