#!/usr/bin/env bash
# Tests that sliding-window attention with global columns can recall what only the first block of a
# sequence says, as dense attention can, while a window alone cannot. Examples are --task sft
# conversations of three blocks of 128 tokens: a letter and a digit, then dots, then the letter
# again. The answer is the digit, so only long-range retrieval helps.
source "$(dirname "${BASH_SOURCE[0]}")/../support/cli.sh"

awk 'BEGIN {
  srand(1)
  dots = sprintf("%327s", "")
  gsub(/ /, ".", dots)
  for (example = 0; example < 4000; ++example) {
    key = substr("ABCDEFGHIJKLMNOPQRSTUVWXYZ", 1 + int(26 * rand()), 1)
    value = int(10 * rand())
    printf "{\"prompt\": \"%s%s%s%s\", \"completion\": \"%s\"}\n", key, value, dots, key, value
  }
}' >"$work/data.jsonl"
# A vocabulary of bytes and conversation markers.
echo 'A line of text.' >"$work/text"
"$BIN_DIR/shale" tokenizer train "$work/text" --vocab 259 --out "$work/tokens.json" \
  --special '<|endoftext|>,<|im_start|>,<|im_end|>' >"$work/output" 2>&1 || fail 'no tokenizer'

# check NAME LEAST MOST FLAG...: checks that the validation loss, in nats per answer token, is
# between LEAST and MOST. An answer has two tokens, the digit and the end.
check() {
  local name=$1 least=$2 most=$3 loss
  shift 3
  "$BIN_DIR/train_lm" --task sft --data "$work/data.jsonl" --tokenizer "$work/tokens.json" \
    --layers 2 --width 64 --heads 4 --seq-len 384 --micro-batch 16 --steps 200 --lr 3e-3 \
    --eval-every 200 --eval-samples 128 --threads 1 --no-save --report-every 0 --quiet \
    --out "$work/$name" "$@" >"$work/output" 2>&1 || fail "$name: exit code $?"
  loss=$(sed -nE 's/.*"val_loss": ([0-9.]+).*/\1/p' "$work/$name/metrics.jsonl" | tail -n 1)
  echo "$name: $loss"
  awk -v x="${loss:-99}" -v least="$least" -v most="$most" \
    'BEGIN { exit !(x >= least && x <= most) }' ||
    fail "$name: a loss of $loss, expected $least to $most"
}
check dense 0 0.7
echo '{"pattern": "longformer", "local": 1}' >"$work/longformer.json"
echo '{"pattern": "local", "local": 1}' >"$work/window.json"
check longformer 0 0.7 --attention-pattern "$work/longformer.json"
# Guessing the digit gives half of log(10), which is 1.15.
check window 1.05 1.3 --attention-pattern "$work/window.json"

finish
