#!/usr/bin/env bash
# Tests the check of a GPU's kernels at the start of a run, on the emulator: its result is stored,
# used by the next run, shown by shale doctor, and compared on resume.
source "$(dirname "${BASH_SOURCE[0]}")/../support/cli.sh"
shown=("$work/output")

export SHALE_KERNEL_CHECK=on XDG_CACHE_HOME=$work/cache
for i in $(seq 500); do echo "line $i of a text that is long enough"; done >"$work/text.txt"

# run CODE FLAGS...: trains, and expects this exit code. The check of kernels may take half of
# --timeout.
run() {
  local want=$1
  shift
  timeout 120 "$BIN_DIR/train_lm" --device emu:90 --data "$work/text.txt" --layers 1 --width 32 \
    --heads 2 --seq-len 16 --micro-batch 1 --global-batch 1 --threads 1 --schedule constant --timeout 4 \
    --out "$work/out" "$@" >"$work/output" 2>&1
  local code=$?
  [[ $code -eq $want ]] || fail "$*: exit code $code, expected $want"
}
has() { for text in "$@"; do grep -qF -- "$text" "$work/output" || fail "no '$text'"; done; }
lacks() { if grep -qF -- "$1" "$work/output"; then fail "there is '$1'"; fi; }
# Changes the stored check to one that had time for all cases.
complete() { sed -i 's|"not_run": [0-9]*|"not_run": 0|' "${files[0]}"; }
doctor() { "$BIN_DIR/shale" doctor --quick >"$work/output" 2>&1 || fail "doctor: exit code $?"; }

run 0 --steps 2 --reproducible
has 'checked the kernels of emu:90 in' 'without time for'
lacks 'are not used'
files=("$XDG_CACHE_HOME"/shale/kernels-*.json)
[[ ${#files[@]} -eq 1 && -s ${files[0]} ]] || fail "files: ${files[*]}"
# A check that ran out of time is repeated at the next start. A complete check is not.
doctor
has 'cases of kernels compared with the CPU on emu:90, driver emulator' 'incomplete: no time for'
run 0 --steps 1 --out "$work/again"
has 'checked the kernels of emu:90 in'
complete
run 0 --steps 3 --reproducible --resume auto
lacks 'checked the kernels'
doctor
has 'cases of kernels compared with the CPU on emu:90, driver emulator'
lacks 'no time for'

# Kernels that gave wrong results are not used. A resumed run prints this, or refuses to start.
sed -i 's|"left_out": \[\]|"left_out": [{"kernel": "gemm/fused", "reason": "wrong: a test"}]|' \
  "${files[0]}"
run 64 --steps 4 --reproducible --resume auto
has 'kernels that the GPUs leave out were none in' 'are ["gemm/fused"] now' '--reproducible'
run 0 --steps 4 --out "$work/other"
has 'kernels gemm/fused are not used on the GPUs: wrong: a test'
run 0 --steps 5 --out "$work/other" --resume auto
lacks 'were none in'
doctor
has 'gemm/fused are not used: wrong: a test' 'fix: report this' "rm ${files[0]}"

# If a kernel makes the GPU fail during the check, the check is repeated without this kernel.
cp "${files[0]}" "$work/right.json"
sed -i 's|"finished": true|"finished": false|; s|"failed": \[\]|"failed": [{"slot": "gemm", "without": 0}]|' \
  "${files[0]}"
doctor
has 'one made the GPU fail or hang'
run 0 --steps 1 --out "$work/failed"
has 'made the GPU fail or hang in an earlier check' 'kernels gemm/hopper are not used'
complete
run 0 --steps 1 --out "$work/failed_again"
lacks 'checked the kernels'
cp "$work/right.json" "${files[0]}"

# There is no other kernel for layer norm, so a wrong one is an error.
sed -i 's|gemm/fused|layer_norm_fwd/all|' "${files[0]}"
run 69 --steps 1 --out "$work/third"
has 'layer_norm_fwd: its kernel gave wrong results' 'shale doctor'
SHALE_KERNEL_CHECK=off run 0 --steps 6 --out "$work/other" --resume auto
has 'kernels that the GPUs leave out were ["gemm/fused"] in' 'are none now; losses may differ'

# A damaged file is ignored, and replaced.
echo '{' >"${files[0]}"
run 0 --steps 1 --out "$work/fourth"
has 'the GPU kernels are checked again' 'checked the kernels of emu:90'
SHALE_KERNEL_CHECK=never run 64 --steps 1 --out "$work/fourth"
has 'SHALE_KERNEL_CHECK: found never, expected on or off'

finish
