#!/usr/bin/env bash
# A run that exceeds its memory budget prints what was allocated, by tag, and which options would
# have been enough. The test then runs with these options.
source "$(dirname "${BASH_SOURCE[0]}")/../support/cli.sh"

shown=("$work/stderr")
for i in {1..400}; do echo "line $i of a text that is trained on"; done >"$work/text.txt"
common=(--data "$work/text.txt" --steps 4 --threads 1 --no-save --seq-len 64 --device cpu)

budget=24MiB
# try FLAGS: runs within the memory budget.
try() {
  read -ra flags <<<"$1"
  run_training 2 "with_${#flags[@]}_${flags[0]#--}" --device-memory $budget "${flags[@]}"
  [[ $code == 0 ]] || fail "exit code $code with $1, which was to be enough within $budget"
}

run_training 2 small --device-memory $budget
[[ $code == 71 ]] || fail "exit code $code without memory, expected 71"
for word in parameters activations 'sum of parts' 'largest free block' \
  'each of these options is enough'; do
  grep -q "$word" "$work/stderr" || fail "the error does not say: $word"
done
mapfile -t remedies < <(sed -n 's/^  \(--.*\) ([0-9.]* [KM]iB).*/\1/p' "$work/stderr" | sort -u)
[[ ${#remedies[@]} -ge 2 ]] || fail "only ${#remedies[@]} options"
for remedy in "${remedies[@]}"; do try "$remedy"; done

# With a smaller budget, no single option is enough.
budget=12MiB
run_training 2 smaller --device-memory $budget
remedy=$(sed -n 's/.*these options together are enough: \(.*\) ([0-9.]* MiB).*/\1/p' \
  "$work/stderr" | head -n 1)
[[ -n $remedy ]] || fail 'no options together'
[[ -z $remedy ]] || try "$remedy"

run_training 1 least --micro-batch 64 --steps 1 --device-memory 2MiB
grep -q 'not enough even with: --recompute full' "$work/stderr" || fail 'a model that fits nowhere'
finish
