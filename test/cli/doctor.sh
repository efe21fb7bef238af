#!/usr/bin/env bash
# shale doctor: a page for people, the same as JSON, and an exit code that says whether one can train.
source "$(dirname "${BASH_SOURCE[0]}")/../support/cli.sh"
shown=("$work/out")

shale=$BIN_DIR/shale

variables=()  # NAME=value, for the tool alone
run() {  # CODE ARGUMENT...
  local want=$1
  shift
  timeout 60 env "${variables[@]}" "$shale" "$@" >"$work/out" 2>&1
  local code=$?
  [[ $code -eq $want ]] || fail "$*: exit code $code, want $want"
}
has() { for text in "$@"; do grep -qF -- "$text" "$work/out" || fail "no '$text'"; done; }

run 0 doctor
has 'CPU' 'cores to use' 'memory' 'ulimit -n' '/dev/shm' 'TMPDIR' 'GPU' 'oneDNN' 'Training can run'
has '2 ranks start and exchange data, with MPI_THREAD_MULTIPLE'

run 0 doctor --json --quick
has '"can_train": true' '"name": "memory"' '"state": "ok"'
grep -q 'ranks start' "$work/out" && fail '--quick starts ranks'
[[ $("$JSON_VALUE" "$work/out" /can_train) == true ]] || fail 'not JSON, or without can_train'

# Measured, each line with a verdict, the axes of the ranks too.
run 0 doctor --quick --bench --ranks 2 --tensor 2 --folder "$work"
for line in 'memory' 'products fp32' 'products bf16' 'disk' 'axis tensor'; do
  grep -qE "^  (ok|warning) +$line .*[0-9]" "$work/out" || fail "no figure and verdict: $line"
done
has 'all-reduce of 8 B' 'a checkpoint of GPT-2 124M takes'
[[ -z $(find "$work" -name '.shale-doctor-*') ]] || fail 'the file on the disk was left'
run 0 doctor --quick --bench --ranks 4 --pipeline 2 --folder "$work"
has 'axis pipeline' 'axis shard'
run 0 doctor --quick --bench --ranks 3 --tensor 2 --folder "$work/nowhere"
has 'nowhere' 'tensor=2'

# What is missing is named with the way out.
variables=(TMPDIR="$work/nowhere")
run 69 doctor --quick
has "FAILED" "$work/nowhere: No such file" 'fix: export TMPDIR=' 'Training cannot run here: 1 failure'
variables=(PATH=/nowhere)
run 69 doctor
has 'two ranks' 'mpirun: No such file' 'fix: apt-get install openmpi-bin'
variables=()
(
  ulimit -n 512
  run 0 doctor --quick
  has 'fix: ulimit -n 65536' 'with'
  exit "$failures"
) || failures=$((failures + 1))

# What ranks that were killed with their mpirun leave.
left=/dev/shm/vader_segment.$(hostname).shale-doctor-test.$$
trap 'rm -rf "$work" "$left"' EXIT
head -c 8192 /dev/zero >"$left"
run 0 doctor --quick
has 'left by MPI' 'that no process uses' 'fix: while no mpirun is starting: rm /dev/shm/vader_segment.*'
rm "$left"

run 64 docter
has "unknown tool 'docter'; did you mean doctor?"
run 64
has 'Usage: shale TOOL' 'expected a tool'
run 64 doctor --jsn
has 'did you mean --json?'
run 0 --version
has 'shale (Shale)'
run 0 doctor --help
has '--quick'

finish
