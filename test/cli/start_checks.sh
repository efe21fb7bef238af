#!/usr/bin/env bash
# What ranks find out about each other before training: other options, another build. And that
# comparing their copies of parameters while they train finds nothing wrong.
set -uo pipefail

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=0
yes 'a line of text to learn from' | head -n 200 >"$work/text.txt"
train=$BIN_DIR/train_lm
flags=(--data "$work/text.txt" --layers 1 --width 32 --heads 2 --seq-len 16 --micro-batch 1
  --steps 6 --out "$work/out")

expect() {  # CODE TEXT... -- ARGUMENT OF MPIRUN...
  local want=$1 texts=()
  shift
  while [[ $1 != -- ]]; do texts+=("$1"); shift; done
  shift
  rm -rf "$work/out"
  timeout -k 5 60 mpirun --oversubscribe --bind-to none "$@" >"$work/output" 2>&1
  local code=$? bad=''
  [[ $code -eq $want ]] || bad+=" exit code $code, want $want;"
  for text in "${texts[@]}"; do grep -qF -- "$text" "$work/output" || bad+=" no '$text';"; done
  [[ $want -eq 0 || $(grep -c '^error: ' "$work/output") -eq 1 ]] || bad+=' not one error line;'
  [[ -z $bad ]] && return
  echo "FAILED: $*:$bad"
  sed 's/^/    /' "$work/output"
  failures=$((failures + 1))
}

expect 76 'options differ between ranks: rank 0 has "lr": 0.1, rank 2 has "lr": 0.2' -- \
  -np 2 "$train" "${flags[@]}" --lr 0.1 : -np 1 "$train" "${flags[@]}" --lr 0.2
expect 0 -- -np 1 "$train" "${flags[@]}" --threads 1 : -np 1 "$train" "${flags[@]}" --threads 2

# The same program, but for the number that its linker gave it.
if command -v objcopy >/dev/null; then
  objcopy --remove-section .note.gnu.build-id "$train" "$work/train_other"
  expect 76 "the program's build: rank 0 has" 'rank 1 has' -- \
    -np 1 "$train" "${flags[@]}" : -np 1 "$work/train_other" "${flags[@]}"
fi

for stage in 0 1 2; do
  expect 0 'step 6/6' -- -np 2 "$train" "${flags[@]}" --zero $stage --check-replicas 2 --threads 1
done
expect 0 'step 6/6' -- \
  -np 4 "$train" "${flags[@]}" --zero 3 --shard-ranks 2 --check-replicas 3 --threads 1

[[ $failures -eq 0 ]] && echo 'all passed'
exit $((failures > 0))
