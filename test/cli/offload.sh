#!/usr/bin/env bash
# Tests offload. A model that does not fit in device memory trains with losses bit-identical to a
# run in which it fits. Options that cannot be combined with offload are errors before training.
source "$(dirname "${BASH_SOURCE[0]}")/../support/cli.sh"

train="$BIN_DIR/train_lm"
text="$work/text.txt"
for i in $(seq 2000); do echo "line $i of a text that is long enough"; done >"$text"

# run NAME FLAGS...: runs two ranks; sets `code` to the exit code.
run() {
  local name=$1
  shift
  timeout 120 mpirun --oversubscribe --bind-to none -np 2 "$train" --data "$text" --seq-len 64 \
    --micro-batch 2 --steps 4 --threads 1 --dtype bf16 --out "$work/$name" "$@" \
    >"$work/$name.stdout" 2>"$work/$name.stderr"
  code=$?
}

fail() {
  failures=$((failures + 1))
  echo "FAILED: $1"
  tail -n 5 "$work/$2.stderr"
}

losses() { grep -o '"loss_bits": "[0-9a-f]*"' "$work/$1/metrics.jsonl"; }

run plain
[[ $code -eq 0 && $(losses plain | wc -l) -eq 4 ]] || fail "a plain run ended with $code" plain

# same NAME FLAGS...: trains, and compares the losses with those of the run `reference`.
reference=plain
same() {
  run "$@"
  [[ $code -eq 0 ]] || { fail "$*: exit code $code" "$1"; return; }
  [[ $(losses "$1") == "$(losses "$reference")" ]] || fail "$*: other losses than without" "$1"
  grep -q 'memory of host' "$work/$1.stdout" "$work/$1.stderr" || fail "$*: no table of host memory" "$1"
}

budget=9MiB
run small --device-memory $budget
[[ $code -eq 71 ]] || fail "a budget of $budget: exit code $code, expected 71" small
grep -q "memory of cpu" "$work/small.stderr" || fail "no table of what the memory went to" small
same zero0 --device-memory $budget --offload optimizer --offload-activations
same half --offload optimizer --offload-ratio 0.5
same zero2 --zero 2 --offload optimizer
same everything --device-memory 6MiB --zero 3 --offload params --offload-activations --recompute full

mkdir "$work/disk"
same on_disk --zero 3 --offload "nvme:$work/disk"
same disk_recomputed --zero 3 --offload "nvme:$work/disk" --recompute full
[[ -z $(ls -A "$work/disk") ]] || fail "files were left on the disk" on_disk

# The tied table has two gradients, which are added on the disk.
reference=reproducible
run reproducible --zero 3 --reproducible
same disk_reproducible --zero 3 --reproducible --offload "nvme:$work/disk"

# Muon's matrices are copied to the device and back.
reference=muon
run muon --optimizer muon --clip 0
[[ $code -eq 0 && $(losses muon) != $(losses plain) ]] || fail "muon trains as adamw does" muon
same muon0 --optimizer muon --clip 0 --offload optimizer
same muon3 --optimizer muon --clip 0 --zero 3 --offload params --offload-ratio 0.5

# Without gradient clipping, shards are updated during backward.
reference=unclipped
run unclipped --clip 0
[[ $code -eq 0 && $(losses unclipped) != $(losses plain) ]] || fail "clipping changes nothing" unclipped
same early0 --clip 0 --offload optimizer
same early2 --clip 0 --zero 2 --offload optimizer
same early_disk --clip 0 --zero 3 --offload "nvme:$work/disk"

# refused WORD FLAGS...: the run fails with an error that contains WORD.
refused() {
  local word=$1
  shift
  run refused "$@"
  [[ $code -eq 64 ]] || fail "$*: exit code $code, expected 64" refused
  grep 'error:' "$work/refused.stderr" | grep -qF -- "$word" || fail "$*: no word of $word" refused
}

refused "--zero 3" --zero 2 --offload params
refused "--zero 3" --zero 2 --offload "nvme:$work/disk"
refused "expected none, optimizer, params or nvme" --zero 3 --offload nvme:
refused "--offload none" --offload-ratio 0.5
refused "adafactor" --optimizer adafactor --offload optimizer
refused "lamb" --optimizer lamb --offload optimizer

finish
