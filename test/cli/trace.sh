#!/usr/bin/env bash
# Tests traces of two ranks in both formats: shale trace report reads what train_lm writes.
source "$(dirname "${BASH_SOURCE[0]}")/../support/cli.sh"

yes 'a line of text to learn from' | head -n 200 >"$work/text.txt"

train() {  # arguments: FLAG...
  timeout -k 5 120 mpirun --oversubscribe --bind-to none -np 2 "$BIN_DIR/train_lm" \
    --data "$work/text.txt" --layers 2 --width 32 --heads 2 --seq-len 16 --micro-batch 1 \
    --threads 1 --zero 2 --out "$work/out" --no-save --steps 8 "$@" >"$work/output" 2>&1
}

for format in json pftrace; do
  trace=$work/trace.$format
  train --trace "$trace" || fail "train_lm --trace $format: exit code $?"
  grep -q "wrote $trace: steps 3 to 5 of 2 ranks" "$work/output" || fail "$format: not told"
  "$BIN_DIR/shale" trace report "$trace" >"$work/output" 2>&1 || fail "$format: no report"
  for words in 'Steps 3 to 5 of 2 ranks on 1 host' '^  forward ' '^  backward ' '^  update ' \
      '^  waiting for other ranks ' 'of that .*gemm' 'Collectives are under way for' \
      'rank [01] on .* is the last to'; do
    grep -q "$words" "$work/output" || fail "$format: no word of '$words'"
  done
done

# Both formats must have the same number of slices for the same step, for both ranks.
for format in json pftrace; do
  "$BIN_DIR/shale" trace draw "$work/trace.$format" --step 4 --out "$work/$format.svg" \
    >"$work/output" 2>&1 || fail "$format: not drawn"
  [[ $(grep -c '>rank [01]<' "$work/$format.svg") -eq 2 ]] || fail "$format: not two ranks drawn"
  grep -q 'fill="#9ecae1"' "$work/$format.svg" || fail "$format: no forward drawn"
done
"$BIN_DIR/shale" trace draw "$work/trace.json" --step 9 --out "$work/none.svg" >"$work/output" 2>&1
[[ $? -eq 64 ]] && grep -qF 'no step 9, expected one of 3, 4, 5' "$work/output" || fail "step 9 is drawn"

# Compares Shale's reader of traces with another reader, if Python is installed.
if command -v python3 >/dev/null; then
  for format in json pftrace; do
    python3 "$(dirname "${BASH_SOURCE[0]}")/../fixtures/check_trace.py" "$work/trace.$format" 2 \
      >"$work/output" 2>&1 || fail "$format: not what a viewer reads"
  done
fi

# An asynchronous device has its own track, with the same events by the device's clock. The host
# runs ahead, so kernels appear later than their launches.
train --device emu --layers 1 --steps 3 --trace "$work/emu.json" --trace-steps 2-3
code=$?
if [[ $code == 69 ]]; then
  echo 'skipped: this build has no emulator, so nobody traced a device that runs later'
else
  [[ $code == 0 ]] || fail "--device emu: exit code $code"
  grep -qE "steps 2 to 3 of 2 ranks, device clocks agree within [0-9.e-]+ us" "$work/output" ||
    fail 'emu: not how exact its times are'
  "$BIN_DIR/shale" trace report "$work/emu.json" >"$work/output" 2>&1 || fail 'emu: no report'
  grep -qE 'Kernels take [5-9][0-9][.0-9]*% of a step, as the device runs them' "$work/output" ||
    fail 'emu: its kernels are not where it runs them'
  [[ $(grep -c '"name":"device"' "$work/emu.json") == 2 ]] || fail 'emu: no track of the device'
fi

train --trace "$work/some.json" --trace-steps 7-8 || fail "--trace-steps 7-8: exit code $?"
grep -q 'steps 7 to 8 of 2 ranks' "$work/output" || fail '7-8: not told'
train --trace "$work/later.json" --steps 2 || fail "no step to trace: exit code $?"
grep -q 'nothing was traced' "$work/output" || fail 'no step to trace: no warning'
train --trace "$work/gone/trace.json" || fail "no folder: exit code $?"
grep -q 'cannot write the trace, training continues' "$work/output" || fail 'no folder: no warning'

refused() {  # arguments: WORDS FLAG...
  local words=$1
  shift
  train "$@"
  [[ $? == 64 ]] || fail "$*: expected exit code 64"
  grep -q -- "$words" "$work/output" || fail "$*: no word of '$words'"
}
refused 'ends in .json' --trace "$work/trace.txt"
refused 'steps such as 3-5' --trace "$work/trace.json" --trace-steps 5-3
refused 'but the run has 8 steps' --trace "$work/trace.json" --trace-steps 3-9
refused 'no effect without --trace;' --trace-steps 3-5
"$BIN_DIR/shale" trace report "$work/text.txt" >"$work/output" 2>&1
[[ $? == 65 ]] || fail 'report of a text: expected exit code 65'

finish
