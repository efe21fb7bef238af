#!/usr/bin/env bash
# Tests --dtype fp8. GEMMs of the middle blocks are quantized, and training converges as in bf16.
# ZeRO, recomputation, ranks, pipelines and resuming change no bit. A model is refused if none of
# its GEMMs can be quantized.
source "$(dirname "${BASH_SOURCE[0]}")/../support/cli.sh"

for i in $(seq 2000); do echo "line $i of a text that is long enough"; done >"$work/text.txt"

common=(--data "$work/text.txt" --layers 3 --width 64 --heads 2 --seq-len 64 --global-batch 8
  --micro-batch 2 --threads 1 --steps 40 --lr 3e-3 --keep 0 --dtype fp8)

val_loss() { sed -nE 's/.*"val_loss": ([0-9.]+).*/\1/p' "$work/$1/metrics.jsonl" | tail -n 1; }

# ---- Quality ----
trains bf16 1 --dtype bf16 --eval-every 40
trains fp8 1 --eval-every 40
[[ $(rows fp8) != $(rows bf16) ]] || fail "fp8 has the bits of bf16"
awk -v a="$(val_loss bf16)" -v b="$(val_loss fp8)" \
  'BEGIN { exit !(a > 0 && b > 0 && b <= a * 1.03) }' ||
  fail "fp8 ends at $(val_loss fp8), bf16 at $(val_loss bf16), expected at most 3% more"
trains tensors 1 --fp8-scaling tensor --eval-every 40
[[ $(rows tensors) != $(rows fp8) ]] || fail "--fp8-scaling changes nothing"
awk -v a="$(val_loss bf16)" -v b="$(val_loss tensors)" \
  'BEGIN { exit !(a > 0 && b > 0 && b <= a * 1.03) }' ||
  fail "scales of tensors end at $(val_loss tensors), bf16 at $(val_loss bf16), expected at most 3% more"
trains all_blocks 1 --fp8-kept-blocks 0 --steps 2
[[ $(rows all_blocks) != $(rows fp8 | head -n 2) ]] || fail "--fp8-kept-blocks 0 changes nothing"

# ---- Options that change no bit ----
few=(--steps 6 --reproducible)
trains one 1 "${few[@]}" --save-every 3
trains two 2 "${few[@]}" --zero 3
same two one
trains recomputed 2 "${few[@]}" --zero 2 --recompute full
same recomputed one
trains staged 2 "${few[@]}" --pipeline 2
same staged one
trains tensor 1 "${few[@]}" --tensor 2
trains tensor2 2 "${few[@]}" --tensor 2
same tensor2 tensor
trains llama 1 "${few[@]}" --model llama-nano --kv-heads 2
trains llama_three 2 "${few[@]}" --model llama-nano --kv-heads 2 --zero 3
same llama_three llama
trains resumed 1 "${few[@]}" --resume "$work/one/checkpoints/step_00000003"
[[ $(rows resumed) == $(rows one | tail -n 3) ]] || fail "resumed: other losses than without a stop"
trains to_bf16 1 "${few[@]}" --dtype bf16 --resume "$work/one/checkpoints/step_00000003"

# ---- On Hopper's tensor cores, emulated ----
hopper=(--steps 2 --reproducible --deterministic --seq-len 32 --global-batch 4 --micro-batch 1)
trains reference 1 "${hopper[@]}"
trains hopper 1 "${hopper[@]}" --device emu:90
close hopper reference 2
trains hopper_three 2 "${hopper[@]}" --device emu:90 --zero 3 --recompute full
same hopper_three hopper
trains tensor_reference 1 "${hopper[@]}" --fp8-scaling tensor
trains hopper_tensor 1 "${hopper[@]}" --fp8-scaling tensor --device emu:90
close hopper_tensor tensor_reference 2
trains hopper_staged 2 "${hopper[@]}" --device emu:90 --pipeline 2 --pipeline-schedule zb-h1
same hopper_staged hopper

# ---- What is refused ---- refused NAME TEXT FLAGS...: the run must fail with an error that
# contains TEXT.
refused() {
  local name=$1 text=$2
  shift 2
  run_training 1 "$name" "$@"
  [[ $code -ne 0 ]] || fail "$name: is not refused"
  grep -q -- "$text" "$work/stdout" "$work/stderr" || fail "$name: no word of: $text"
}
refused old "needs compute capability 8.9 or later, found 8.0; use --dtype bf16" --device emu:80
refused emulated "need compute capability 9.0 (H100), found 8.9; use --fp8-scaling tensor on a real" \
  --device emu:89
refused library "cuBLASLt, which the emulator cannot run; use --dtype bf16, or --device cpu or" \
  --device emu:120 --fp8-scaling tensor
refused no_blocks "the first and the last 1 of 2 blocks stay in bf16" --layers 2
refused experts "is a MoE layer" --model moe-nano --kv-heads 2

finish
