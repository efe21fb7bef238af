#!/usr/bin/env bash
# Tests that a job ends within seconds, however a rank fails. mpirun returns the exit code of the
# first failure, and exactly one line says what happened.
source "$(dirname "${BASH_SOURCE[0]}")/../support/cli.sh"

program=$BIN_DIR/../test/test_mpi
output=$work/output

milliseconds() { date +%s%3N; }

run() {
  local ranks=$1 mode=$2 start
  start=$(milliseconds)
  timeout -k 5 60 mpirun --oversubscribe --bind-to none -np "$ranks" "$program" "--fail=$mode" \
    >"$output" 2>&1
  code=$?
  elapsed=$(($(milliseconds) - start))
}

# Measures the time to start and end a job on this machine now. The limit below takes it into
# account.
run 3 none
[[ $code -eq 0 ]] || fail "none: exit code $code, expected 0"
baseline=$elapsed

# check RANKS MODE CODE LINES TEXT: runs failure MODE and checks exit code, number of error lines
# and text.
check() {
  local ranks=$1 mode=$2 want_code=$3 want_lines=$4 text=$5 lines
  run "$ranks" "$mode"
  lines=$(grep -c '^error: ' "$output")
  [[ $code -eq $want_code ]] || fail "$mode: exit code $code, expected $want_code"
  [[ $lines -eq $want_lines ]] || fail "$mode: $lines lines begin with 'error: ', expected $want_lines"
  grep -qF "$text" "$output" || fail "$mode: no '$text'"
  # Allows 4 s, or more if starting alone takes long.
  [[ $elapsed -lt $((4000 + 4 * baseline)) ]] || fail "$mode: took $elapsed ms"
  echo "$mode ($ranks ranks): exit code $code after $elapsed ms"
}

bad_data='error: tokens.bin: magic is 7, expected 20240520 (rank 1 of'
check 3 alike 64 1 "error: --lr: 'fast' is not a number (rank 0 of 3)"
check 3 each-of-its-own 64 1 'error: h.0 is on 3 ranks (rank 0 of 3)'
check 3 alone-while-others-wait 65 1 "$bad_data 3)"
check 3 alone-while-others-wait-async 65 1 "$bad_data 3)"
check 3 alone-while-nodes-wait 65 1 "$bad_data 3)"
check 3 alone-while-a-link-waits 65 1 "$bad_data 3)"
check 3 alone-while-a-link-between-nodes-waits 65 1 "$bad_data 3)"
check 2 alone-while-others-compute 65 1 "$bad_data 2)"
check 2 alone-with-collectives-in-flight 65 1 "$bad_data 2)"
check 2 training-forward 65 1 "$bad_data 2)"
check 3 training-backward 65 1 "$bad_data 3)"
check 2 training-step 65 1 "$bad_data 2)"
check 3 training-pipeline 65 1 "$bad_data 3)"
check 2 training-memory 71 1 'memory: h.'
check 2 out-of-memory 71 1 'error: out of memory (rank 1 of 2)'
check 2 unknown-exception 70 1 'error: an exception of unknown type (rank 1 of 2)'
check 2 second-world 64 1 'World: MPI runs already'
check 3 disagree 76 1 "rank 1 calls all_reduce_sum 0 of fp32[7] for 'wte gradient'"
check 3 missing 76 1 "no message from rank 1 for 0.5 s in all_reduce_sum 1 of fp32[100000] for"
check 3 a-ring-stalls 76 1 "no message from rank 1 for 0.5 s in all_to_all_v 1 of fp32 for 'context ring'"
check 3 leaves-with-an-error 65 1 "$bad_data 3)"
check 3 leaves 76 1 "rank 1 has left while all_reduce_sum 1"
check 2 leaves-a-link 76 1 "link 1 -> 0: rank 1 has left while rank 0 waits for forward 7 of chunk 1"
check 3 killed 137 0 'signal 9'

# All other ranks name a rank that is stopped or hangs, and say which operation they waited in.
also() {  # arguments: MODE TEXT...
  local mode=$1 text
  shift
  for text in "$@"; do grep -qF -- "$text" "$output" || fail "$mode: no '$text'"; done
}
check 3 stopped-while-others-compute 76 1 'error: no heartbeat from rank 1 for 2 s, last seen in step 41'
also stopped-while-others-compute '[rank 0] no heartbeat from rank 1' \
  '[rank 2] no heartbeat from rank 1' '[rank 2] in step 41; last collectives' \
  "all_reduce_sum 0 of fp32[100000] for 'blocks.7 gradient', 391 KiB, group 'world'" \
  '[rank 0] main thread:' 'shale::test::run_failure_mode('
check 3 stopped-in-collective 76 1 'error: no heartbeat from rank 1 for 2 s, last seen in step 41'
also stopped-in-collective '[rank 0] no heartbeat from rank 1' '[rank 2] no heartbeat from rank 1'
# The wait is two seconds, or more on a busy machine.
running="running for [1-9][0-9]*\\.[0-9] s: all_reduce_sum 1 of fp32\\[100000\\] for 'blocks.8 gradient'"
grep -q "$running" "$output" || fail "stopped-in-collective: no '$running'"
check 2 stopped-on-link 76 1 'error: no heartbeat from rank 1 for 2 s, last seen in step 41'
waits='running for [1-9][0-9]*\.[0-9] s: link 1 -> 0: waits for forward 7 of chunk 1 in step 41'
grep -q "$waits" "$output" || fail "stopped-on-link: no '$waits'"
check 3 training-pipeline-stopped 76 1 'error: no heartbeat from rank 1 for 2 s, last seen in step 3'
also training-pipeline-stopped '[rank 0] no heartbeat from rank 1' \
  '[rank 2] no heartbeat from rank 1' 'link 1 -> 2: waits for forward'
check 3 hung-in-compute 76 1 'error: group '"'world'"': no message from rank 1 for 2 s in all_reduce_sum 1'
also hung-in-compute '[rank 1]   shale::test::hang_in_computation()' '[rank 0] main thread:'

# A silent rank is noticed long before a collective's time-out.
check 3 hung-long-before-the-timeout 76 1 'error: no heartbeat from rank 1 for 2 s, last seen in step 41'

# Without a launcher there is one rank and no MPI, and the program answers immediately.
start=$(milliseconds)
"$program" --fail=alike >"$output" 2>&1
code=$?
elapsed=$(($(milliseconds) - start))
[[ $code -eq 64 ]] || fail "without mpirun: exit code $code, expected 64"
grep -q "(rank" "$output" && fail "without mpirun: the error names a rank"
echo "without mpirun: exit code $code after $elapsed ms"

finish
