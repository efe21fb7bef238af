#!/usr/bin/env bash
# Tests --dtype tf32. Operands of fp32 GEMMs are rounded, and training converges as well as in fp32.
# ZeRO, ranks and processes change no bit, and GPU kernels agree. GPUs without TF32 are refused, and
# so are plans of its time.
source "$(dirname "${BASH_SOURCE[0]}")/../support/cli.sh"

for i in $(seq 2000); do echo "line $i of a text that is long enough"; done >"$work/text.txt"

common=(--data "$work/text.txt" --layers 2 --width 64 --heads 2 --seq-len 64 --global-batch 8
  --micro-batch 2 --threads 1 --steps 30 --lr 3e-3 --keep 0 --dtype fp32)

# is_rounded NAME REFERENCE STEPS: losses are close to REFERENCE but not bit-identical.
is_rounded() {
  [[ $(rows "$1") != $(rows "$2") ]] || fail "$1 has the bits of $2"
  close "$@"
}

trains exact 1
trains rounded 1 --dtype tf32
is_rounded rounded exact 30
"$BIN_DIR/shale" plan --check "$work/rounded" >"$work/stdout" 2>"$work/stderr" ||
  fail "the plan of memory is not the run's: $(cat "$work/stdout")"

# ---- Options that change no bit ----
few=(--steps 4 --reproducible --dtype tf32)
trains one 1 "${few[@]}"
trains three 2 "${few[@]}" --zero 3
same three one
trains tensor 1 "${few[@]}" --tensor 2
trains tensor2 2 "${few[@]}" --tensor 2
same tensor2 tensor
mixture=(--model moe-nano --kv-heads 2 --steps 4 --reproducible)
trains experts_exact 1 "${mixture[@]}"
trains experts 1 "${mixture[@]}" --dtype tf32
is_rounded experts experts_exact 4

# ---- On a GPU's tensor cores, emulated ----
emulated=(--steps 2 --reproducible --deterministic --seq-len 32 --global-batch 4 --micro-batch 1)
trains reference 1 "${emulated[@]}" --dtype tf32
trains gpu 1 "${emulated[@]}" --dtype tf32 --device emu:80
trains gpu_exact 1 "${emulated[@]}" --device emu:80
is_rounded gpu reference 2
is_rounded gpu gpu_exact 2

# ---- What is refused ----
run_training 1 turing "${emulated[@]}" --dtype tf32 --device emu:75
[[ $code -ne 0 ]] || fail "a GPU without tf32 is not refused"
grep -q "tf32 needs compute capability 8.0 or later" "$work/stdout" "$work/stderr" ||
  fail "no word of what tf32 needs"
"$BIN_DIR/shale" plan --model nano --ranks 8 --dtype tf32 --threads 1 \
  --cluster "$(dirname "${BASH_SOURCE[0]}")/../../deploy/clusters/a100.json" >"$work/stdout" \
  2>"$work/stderr" && fail "the time of --dtype tf32 is planned"
grep -q "no tf32 throughput" "$work/stderr" || fail "no word of the time: $(cat "$work/stderr")"

finish
