#!/usr/bin/env bash
# A model goes out to a Hugging Face folder and comes back the same, as one file or as many, from one
# rank or from two that hold a half each.
source "$(dirname "${BASH_SOURCE[0]}")/../support/cli.sh"

train="$BIN_DIR/train_lm"
# run NAME LAUNCHER... -- FLAGS...
run() {
  local name=$1 launcher=()
  shift
  while [[ $1 != -- ]]; do launcher+=("$1"); shift; done
  shift
  timeout 120 ${launcher[@]+"${launcher[@]}"} "$train" --data "$work/text.txt" --layers 2 --seq-len 32 \
    --micro-batch 2 --global-batch 4 --device cpu --threads 1 --out "$work/out_$name" "$@" \
    >"$work/log_$name" 2>&1 || { fail "$name: exit code $?"; tail -n 5 "$work/log_$name"; }
}
loss_bits() { grep -o '"loss_bits": "[0-9a-f]*"' "$work/out_$1/metrics.jsonl"; }

for i in $(seq 2000); do echo "line $i of a text that is long enough"; done >"$work/text.txt"

two=(mpirun --oversubscribe --bind-to none -np 2)
run whole -- --steps 2 --export "$work/whole"
run parts "${two[@]}" -- --steps 2 --zero 3 --export "$work/parts" --export-shard-size 300KiB

[[ -e $work/whole/model.safetensors && ! -e $work/whole/model.safetensors.index.json ]] \
  || fail "a small model is one file"
parts=("$work"/parts/model-*-of-*.safetensors)
[[ ${#parts[@]} -gt 2 && ! -e $work/parts/model.safetensors ]] || fail "a limit makes several files"
for part in "${parts[@]}"; do
  # No parameter of this model is larger than 256 KiB, so no file is above the limit but by its header.
  [[ $(stat -c %s "$part") -le $((300 * 1024 + 4096)) ]] || fail "$part is above the limit"
done
grep -q '"total_size"' "$work/parts/model.safetensors.index.json" || fail "the index has a size"

# Two ranks add gradients in another order than one, so the two models differ; each is its own twin.
run again -- --steps 0 --init "$work/parts" --export "$work/again"
run back "${two[@]}" -- --steps 0 --zero 3 --init "$work/again" --export "$work/back" --export-shard-size 300KiB
for file in "$work"/parts/*; do
  cmp -s "$file" "$work/back/$(basename "$file")" || fail "$(basename "$file") changed on the way"
done

run from_many -- --steps 2 --init "$work/parts"
run from_one -- --steps 2 --init "$work/again"
[[ -n $(loss_bits from_many) && $(loss_bits from_many) == "$(loss_bits from_one)" ]] \
  || fail "training goes on from both with the same losses"

# A preset that is not what is stored.
"$train" --data "$work/text.txt" --init "$work/again" --model gpt2-124m --seq-len 32 \
  --out "$work/out_bad" >"$work/log" 2>&1
[[ $? -eq 64 && ! -e $work/out_bad ]] &&
  grep -q "model gpt2-124m is gpt2 of 12 layers, width 768, 12 heads, the model in" "$work/log" ||
  fail "another --model than the stored one is refused, code 64: $(tail -n 1 "$work/log")"

# A file that is missing, and one that is cut.
missing=("$work"/back/model-00002-of-*.safetensors)
mv "${missing[0]}" "$work/elsewhere"
"$train" --data "$work/text.txt" --init "$work/back" --seq-len 32 --out "$work/out_bad" >"$work/log" 2>&1
[[ $? -eq 66 ]] && grep -q "model-00002-of" "$work/log" || fail "a missing file is named, code 66"
head -c 1000 "$work/elsewhere" >"${missing[0]}"
"$train" --data "$work/text.txt" --init "$work/back" --seq-len 32 --out "$work/out_bad" >"$work/log" 2>&1
[[ $? -eq 65 ]] && grep -q "model-00002-of" "$work/log" || fail "a cut file is named, code 65"

finish
