#!/usr/bin/env bash
# Runs the training of docs/tutorials/first_model.md until its first validation. It must print the
# numbers on the page. test/cli/commands.sh checks the form of all lines.
source "$(dirname "${BASH_SOURCE[0]}")/../support/cli.sh"

page=$(cd "$(dirname "${BASH_SOURCE[0]}")/../../docs/tutorials" && pwd)/first_model.md
# shows TEXT: prints the line of the page that begins with this text.
shows() { grep -m 1 "^$1" "$page"; }
[[ -d /usr/include/c++ ]] || { echo 'skipped: no /usr/include/c++, which the page trains on'; exit 4; }

read -ra command < <(grep -m 1 '^    train_lm ' "$page")
"$BIN_DIR/${command[0]}" "${command[@]:1}" --out "$work/first" >"$work/output" 2>&1 &
trainer=$!
for ((i = 0; i < 1200; ++i)); do
  grep -q '^step 100/.* validation loss' "$work/output" && break
  sleep 0.1
done
kill -TERM $trainer
wait $trainer
[[ $? -eq 75 ]] || fail 'the run was not stopped at its first validation'

grep -qxF "$(shows 'model ')" "$work/output" || fail "not the model of the page: $(shows 'model ')"
# With another compiler, the headers differ, and so do the numbers.
if grep -qxF "$(shows 'text: ')" "$work/output"; then
  loss() { sed -nE 's/^step 100\/.* validation loss ([0-9.]+) .*/\1/p' "$1"; }
  # In 100 steps, rounding changes the loss by far less than 0.02; another rate or model changes it
  # by more.
  awk -v page="$(loss "$page")" -v found="$(loss "$work/output")" \
    'BEGIN { d = page - found; exit page == "" || d * d > 0.02 * 0.02 }' ||
    fail "the page has a loss of $(loss "$page") at step 100, found $(loss "$work/output")"
  found=$(sed -nE 's/^step 100\/.* [|] ([0-9.]+k tokens) in .*/\1/p' "$work/output")
  grep -qF "| $found in" "$page" || fail "the page validates on other tokens than $found"
else
  echo "skipped: the compiler has other headers than the page: $(grep '^text: ' "$work/output")"
fi

finish
