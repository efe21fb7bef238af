# What scripts that test programs begin and end with; they source it:
#
#   source "$(dirname "${BASH_SOURCE[0]}")/../support/cli.sh"
#
# $work      a folder, gone when the script ends
# $shown     the files that fail() shows, where they are there
# fail WORDS   counts a failure and says it
# finish       ends the script, with 1 if something failed
# run_training RANKS OUT FLAGS...
#              runs $BIN_DIR/train_lm, or another $program, with the flags in the array `common` and
#              these, into $work/OUT; leaves what it said in $work/stdout and $work/stderr, and the
#              exit code in `code`

set -uo pipefail

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
failures=0
shown=("$work/output")

fail() {
  failures=$((failures + 1))
  echo "FAILED: $*"
  local file
  for file in "${shown[@]}"; do
    if [[ -s $file ]]; then head -n 20 "$file" | sed 's/^/    /'; fi
  done
}

finish() {
  [[ $failures -eq 0 ]] || { echo "$failures failed"; exit 1; }
  echo "${*:-all passed}"
  exit 0
}

run_training() {
  local ranks=$1 out=$2
  shift 2
  timeout 120 mpirun --oversubscribe --bind-to none -np "$ranks" "$BIN_DIR/${program:-train_lm}" \
    "${common[@]}" --out "$work/$out" "$@" >"$work/stdout" 2>"$work/stderr"
  code=$?
}
