#!/usr/bin/env bash
# Tests gradients that are not finite. In f32, the run ends and names the ranks and the parameter.
# In f16, it skips the step, and ends once the loss scale cannot be lowered further.
source "$(dirname "${BASH_SOURCE[0]}")/../support/cli.sh"

yes 'a line of text to learn from' | head -n 200 >"$work/text.txt"

train() {  # arguments: NAME FLAG...
  local name=$1
  shift
  timeout -k 5 120 mpirun --oversubscribe --bind-to none -np 2 "$BIN_DIR/train_lm" \
    --data "$work/text.txt" --layers 1 --width 32 --heads 2 --seq-len 16 --micro-batch 1 \
    --threads 1 --out "$work/$name" "$@" >"$work/output" 2>&1
  code=$?
}

expect() {  # arguments: CODE TEXT...
  [[ $code -eq $1 ]] || fail "exit code $code, expected $1"
  shift
  for text in "$@"; do grep -qF -- "$text" "$work/output" || fail "no '$text'"; done
}

# The first update makes the parameters so large that the next forward overflows on both ranks.
train f32 --steps 4 --lr 1e30 --warmup-steps 0
expect 77 '(on rank 0, 1)' 'the gradient of' 'is not finite'

train f16 --steps 12 --dtype fp16 --loss-scale 16777216
expect 0 'step 1: the gradient overflowed, the step was skipped; the loss scale is 8388608 now'
tail -n 1 "$work/f16/metrics.jsonl" | grep -qE '"loss_scale": [0-9]+, "skipped_steps": [1-9]' ||
  fail 'the last row has no loss scale and skipped steps'

train hopeless --steps 40 --dtype fp16 --lr 1e30 --warmup-steps 0
expect 77 'is not finite, with a loss scale of 1;'

# Uses GPUs without bf16, which have other kernels; few steps, because they are emulated.
for arch in 75 80; do
  train "emu$arch" --steps 2 --dtype fp16 --device "emu:$arch"
  expect 0
done
losses() { sed -nE 's/.*"loss": ([0-9.]+).*/\1/p' "$work/$1/metrics.jsonl"; }
paste <(losses emu75) <(losses emu80) |
  awk '{ n += 1; if (($1 - $2) ^ 2 > 1e-8 * $2 ^ 2) bad = 1 } END { exit !(n == 2 && !bad) }' ||
  fail "emu:75 has losses $(losses emu75 | xargs), emu:80 $(losses emu80 | xargs)"

finish
