#!/usr/bin/env bash
# Runs the Python module under mpirun: ZeRO stages agree bit for bit, the examples train, and an
# exception on one rank ends the others with its message and exit code.
source "$(dirname "${BASH_SOURCE[0]}")/../support/cli.sh"
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)

# arguments: RANKS ARGUMENTS...: leaves the output in $work/output and the exit code in `code`
run() {
  local ranks=$1
  shift
  timeout 120 mpirun --oversubscribe --bind-to none -np "$ranks" "$PYTHON" "$@" \
    >"$work/output" 2>&1
  code=$?
}

# arguments: WORDS: counts how often ranks printed them; mpirun may join lines of two ranks
said() {
  grep -o "$1" "$work/output" | wc -l
}

tests=$root/test/bindings/python_test.py
run 2 "$tests" ranks agree
[[ $code -eq 0 && $(said 'ranks agree') -eq 2 ]] || fail "stages: code $code"

run 2 "$tests" ranks fail
[[ $code -eq 70 ]] || fail "a rank that fails: code $code, expected 70"
grep -q 'error: ArgumentError: matmul: .*(rank 1 of 2)' "$work/output" ||
  fail "a rank that fails: no line that names it"

run 2 "$tests" guest
[[ $code -eq 0 && $(said 'guests left') -eq 2 ]] || fail "guests: code $code"

run 2 "$root/examples/python/train.py" "$root/README.md" 4 3
[[ $code -eq 0 && $(grep -c '^step . | loss ' "$work/output") -eq 4 ]] ||
  fail "train.py: code $code"

run 3 "$root/examples/python/own_optimizer.py"
read -r first last < <(awk '{ print $5 }' "$work/output" | sed -n '1p;$p' | xargs)
[[ $code -eq 0 ]] && awk -v a="$first" -v b="$last" 'BEGIN { exit !(b > 0 && b < 0.8 * a) }' ||
  fail "own_optimizer.py: code $code, losses $first to $last"

finish
