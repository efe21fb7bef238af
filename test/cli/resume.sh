#!/usr/bin/env bash
# Tests that a resumed run has the same losses and final state, bit for bit, as a run that never
# stopped, even if permitted options change in between. Other changes are refused.
source "$(dirname "${BASH_SOURCE[0]}")/../support/cli.sh"
shown=("$work/stdout" "$work/stderr")

for i in $(seq 2000); do echo "line $i of a text that is long enough"; done >"$work/text.txt"

common=(--data "$work/text.txt" --layers 1 --width 32 --heads 2 --seq-len 32 --global-batch 8
  --micro-batch 1 --threads 1 --steps 12 --keep 0)

# rows OUT FROM: prints step and loss bits of the steps after FROM.
rows() { sed -nE 's/^\{"step": ([0-9]+), .*"loss_bits": ("[0-9a-f]*").*/\1 \2/p' \
  "$work/$1/metrics.jsonl" | awk -v from="$2" '$1 > from'; }

# same_end A B: the last checkpoints have equal bytes.
same_end() {
  local a="$work/$1/checkpoints/step_00000012" b="$work/$2/checkpoints/step_00000012" file
  for file in "$a"/shard_*; do cmp -s "$file" "$b/$(basename "$file")" || return 1; done
}

# goes_on NAME FROM_OUT STEP RANKS FLAGS...: resumes from a checkpoint in a new folder.
goes_on() {
  local name=$1 from=$2 step=$3 ranks=$4
  shift 4
  run_training "$ranks" "$name" --resume "$work/$from/checkpoints/step_0000000$step" "$@"
  [[ $code -eq 0 ]] || { fail "$name: exit code $code"; return; }
  [[ -n $(rows "$name" "$step") && $(rows "$name" "$step") == $(rows "$from" "$step") ]] ||
    fail "$name: other losses than without a stop"
}

# ---- Layouts: the same number of ranks, bit-identical without --reproducible ----
run_training 2 plain --micro-batch 4 --save-every 4
[[ $code -eq 0 && $(ls "$work/plain/checkpoints" | grep -c '^step_') -eq 3 ]] || fail "plain: exit code $code"
grep -q 'saved step 8' "$work/stdout" || fail "plain: no word of the checkpoint"
grep -q '"state": "done"' "$work/plain/status.json" || fail "plain: status.json"
grep -q '"checkpoint_step": 12' "$work/plain/status.json" || fail "plain: status.json"
goes_on same plain 4 2 --micro-batch 4
same_end same plain || fail "same: another state at the end"
goes_on sharded plain 8 2 --micro-batch 4 --zero 3
goes_on offloaded plain 4 2 --micro-batch 4 --zero 2 --offload optimizer

# ---- Ranks and micro-batches ----
run_training 2 tree --reproducible --save-every 4
goes_on tree1 tree 4 1 --reproducible
goes_on tree4 tree 8 4 --reproducible --zero 2

# ---- 1-bit Adam: error feedback of its replicas ----
one_bit=(--micro-batch 4 --zero 1 --shard-ranks 1 --optimizer 1bit-adam --freeze-step 3)
run_training 2 one_bit "${one_bit[@]}" --save-every 4
[[ $code -eq 0 ]] || fail "one_bit: exit code $code"
goes_on one_bit_same one_bit 4 2 "${one_bit[@]}"
same_end one_bit_same one_bit || fail "one_bit_same: another state at the end"

# ---- Local steps: replicas differ between two outer steps ----
local=(--micro-batch 4 --zero 1 --shard-ranks 1 --outer-every 5 --outer-start 2 --outer-streaming)
run_training 2 local "${local[@]}" --save-every 4 --eval-every 3 --eval-samples 8
[[ $code -eq 0 ]] || fail "local: exit code $code"
goes_on local_same local 8 2 "${local[@]}"
same_end local_same local || fail "local_same: another state at the end"
grep -q '"sent_gradients_bytes": 0,' "$work/local/metrics.jsonl" || fail "local: all steps send gradients"

# ---- Quantized gathers and reductions, which leave no trace in checkpoints ----
codes=(--micro-batch 4 --zero 3 --quantize-gathers 8 --quantize-reductions 4)
run_training 2 codes "${codes[@]}" --save-every 4
[[ $code -eq 0 ]] || fail "codes: exit code $code"
goes_on codes_same codes 8 2 "${codes[@]}"
run_training 2 codes_off --micro-batch 4 --resume "$work/codes/checkpoints/step_00000004"
[[ $code -eq 0 ]] || fail "codes_off: exit code $code"

# ---- fp16: the loss scale, and the number of skipped steps ----
run_training 2 half --micro-batch 4 --save-every 4 --dtype fp16 --loss-scale 16777216
goes_on half4 half 4 2 --micro-batch 4 --dtype fp16 --loss-scale 16777216
[[ $(grep -o '"loss_scale.*' "$work/half4/metrics.jsonl") == \
  $(tail -n 8 "$work/half/metrics.jsonl" | grep -o '"loss_scale.*') ]] || fail "half4: other loss scales"
same_end half4 half || fail "half4: another state at the end"

# ---- A batch of another size continues at the same data position ----
run_training 2 batch --micro-batch 4 --global-batch 16 --resume "$work/plain/checkpoints/step_00000004"
[[ $(tail -n 1 "$work/batch/metrics.jsonl" | grep -o '"tokens": [0-9]*') == '"tokens": 5120' ]] ||
  fail "batch: expected 4 steps of 8 and 8 of 16 sequences of 32 tokens"

# ---- A damaged newest checkpoint: it is named, and the previous one is used ----
cp -r "$work/plain" "$work/damaged"
file="$work/damaged/checkpoints/step_00000012/shard_00001_of_00002.safetensors"
printf 'x' | dd of="$file" bs=1 seek=9000 conv=notrunc status=none
run_training 2 damaged --micro-batch 4 --save-every 4 --resume auto
[[ $code -eq 0 ]] || fail "damaged: exit code $code"
grep -q 'step_00000012.*shard_00001_of_00002' "$work/stderr" || fail "damaged: no warning"
grep -q 'resumed from .*step_00000008' "$work/stdout" || fail "damaged: not from step 8"
[[ $(rows damaged 0) == $(rows plain 0) ]] || fail "damaged: other losses, or a step twice"
same_end damaged plain || fail "damaged: another state at the end"

# ---- Another run with the optimizer states ----
# All samples are equal. A run that starts its data again therefore has the same samples as one that
# continues.
yes 'a line of 32 characters, no more' | tr -d '\n' | head -c 65536 >"$work/equal.txt"
equal=(--data "$work/equal.txt" --micro-batch 4 --schedule constant --warmup-steps 0 --lr 1e-3)
from=(--init "$work/whole/checkpoints/step_00000004" --steps 8)
bits() { sed -nE 's/.*"loss_bits": ("[0-9a-f]*").*/\1/p' "$work/$1/metrics.jsonl"; }
run_training 2 whole "${equal[@]}" --save-every 4
run_training 2 kept "${equal[@]}" "${from[@]}" --keep-optimizer --save-every 4
[[ $code -eq 0 && $(bits kept | wc -l) -eq 8 && $(bits kept) == "$(bits whole | tail -n 8)" ]] ||
  fail 'kept: other losses than a run that goes on'
grep -q 'optimizer states .*, made by 4 updates' "$work/stdout" || fail 'kept: no word of the states'
run_training 2 kept_on "${equal[@]}" "${from[@]}" --keep-optimizer --zero 3 \
  --resume "$work/kept/checkpoints/step_00000004"
[[ $code -eq 0 && $(bits kept_on) == "$(bits whole | tail -n 4)" ]] ||
  fail 'kept_on: other losses after a resume'
run_training 2 empty "${equal[@]}" "${from[@]}"
[[ $code -eq 0 && $(bits empty | head -n 2) != "$(bits kept | head -n 2)" ]] ||
  fail 'empty: the optimizer states make no difference'

# ---- What is refused ----
refused() {  # arguments: CODE WORD FLAGS...
  local want=$1 word=$2
  shift 2
  run_training 2 "${in:-plain}" --micro-batch 4 "$@"
  [[ $code -eq $want ]] || fail "$*: exit code $code, expected $want"
  [[ $(grep -c 'error:' "$work/stderr") -eq 1 ]] || fail "$*: expected one error line"
  grep 'error:' "$work/stderr" | grep -qF -- "$word" || fail "$*: no word of '$word'"
}
refused 64 '--resume auto'
refused 64 '--seed was 1234' --resume auto --seed 7
refused 64 '--lr was' --resume auto --lr 1
refused 64 '--steps was 12' --resume auto --steps 13
refused 64 '--optimizer was "adamw"' --resume auto --optimizer lion
refused 64 'the model shape' --resume auto --layers 2
refused 64 'a checkpoint of step 12' --resume "$work/plain/checkpoints/step_00000004"
refused 66 'nowhere' --resume "$work/nowhere"
in=new refused 64 '--init' --keep-optimizer
in=new refused 64 '--keep-optimizer: --optimizer was "adamw"' --optimizer lion --init "$work/plain" \
  --keep-optimizer
in=new refused 65 'ema' --ema 0.9 --init "$work/plain" --keep-optimizer
for checkpoint in "$work"/plain/checkpoints/step_*; do echo x >>"$checkpoint/manifest.json"; done
refused 65 'manifest.json' --resume auto

finish
