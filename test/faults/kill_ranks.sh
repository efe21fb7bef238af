#!/usr/bin/env bash
# Kills training runs with SIGKILL, and restarts them with --resume auto. Kills one rank, or the
# whole job with mpirun, at random times and, in half of the cases, in the middle of saves:
#
#   BIN_DIR=build/release/bin test/faults/kill_ranks.sh [KILLS] [SEED]     default: 6 kills
#
# After every kill the whole job must be gone: within 3 seconds on an idle machine (the slowest time
# is printed; 15 seconds are an error). The next start must resume from the last reported checkpoint
# or a later one, and delete what the killed run left behind. A run that finishes must have each
# step once, and the losses and the state of a run that was never killed, bit for bit.
source "$(dirname "${BASH_SOURCE[0]}")/../support/cli.sh"

kills=${1:-6}
seed=${2:-$$}
RANDOM=$seed
train="$BIN_DIR/train_lm"
# Open MPI's shared-memory segments survive a kill of mpirun. Here they are in $work and are deleted
# with it.
export OMPI_MCA_btl_vader_backing_directory="$work"
ranks=3
steps=90
for i in $(seq 4000); do echo "line $i of a text that is long enough"; done >"$work/text.txt"

fail() {
  failures=$((failures + 1))
  echo "FAILED (kill $killed of seed $seed): $*"
  tail -n 5 "$work/log" | sed 's/^/    /'
}

# set_command OUT: sets `command` to the command line of a run with output folder OUT.
set_command() {
  command=(mpirun --oversubscribe --bind-to none -np "$ranks" "$train" --data "$work/text.txt"
    --layers 2 --width 256 --heads 4 --seq-len 64 --micro-batch 2 --threads 1 --steps "$steps"
    --save-every 7 --zero 2 --resume auto --out "$work/$1")
}


check_end() {
  local file
  [[ $(rows run) == $(rows whole) ]] || fail "other losses, or a step twice or never"
  for file in "$work"/whole/checkpoints/step_000000$steps/shard_*; do
    cmp -s "$file" "$work/run/checkpoints/step_000000$steps/$(basename "$file")" ||
      fail "another state at the end: $(basename "$file")"
  done
}

leftovers() { ls -A "$work/run/checkpoints" 2>/dev/null | grep -E '\.tmp-|^\.trash' ; }
# Lists the named shared memory that these processes use now.
shared_by() {
  local pid
  for pid in "$@"; do grep -o '/dev/shm/.*' "/proc/$pid/maps" 2>/dev/null; done | grep -v ' (deleted)$' | sort -u
}
ranks_of() { pgrep -P "$1" -x train_lm; }

milliseconds() { date +%s%3N; }

# wait_gone PID...: waits until all processes have ended (zombies count as ended); fails on timeout.
wait_gone() {
  local start pid alive took
  start=$(milliseconds)
  while took=$(($(milliseconds) - start)) && [[ $took -lt 15000 ]]; do
    alive=0
    for pid in "$@"; do
      [[ -r /proc/$pid/stat && $(awk '{print $3}' "/proc/$pid/stat" 2>/dev/null) != Z ]] && alive=1
    done
    if [[ $alive -eq 0 ]]; then
      if [[ $took -gt $slowest_ms ]]; then slowest_ms=$took; fi
      return 0
    fi
    sleep 0.05
  done
  return 1
}

at_work() { grep -qE '^(step|saved step) ' "$work/log"; }
# Prints the folders of incomplete saves, without starting a process.
open_saves() { compgen -G "$work/run/checkpoints/*.tmp-*"; }

# Waits for the moment of the next kill. The moments are, in turn: a random time after launch, a
# random time during training, and twice the middle of a save. Also returns if the run has ended.
wait_for_moment() {
  local job=$1 saves=$((1 + RANDOM % 3)) last="" now
  if [[ $((killed % 4)) -gt 0 ]]; then
    while kill -0 "$job" 2>/dev/null && ! at_work; do sleep 0.02; done
  fi
  if [[ $((killed % 4)) -lt 2 ]]; then
    sleep "$(printf '0.%03d' $((RANDOM % 1000)))"
    return
  fi
  while kill -0 "$job" 2>/dev/null && [[ $saves -gt 0 ]]; do
    now=$(open_saves)
    if [[ -n $now && $now != "$last" ]]; then saves=$((saves - 1)) last=$now; fi
  done
}

killed=0
set_command whole
timeout 120 "${command[@]}" >"$work/log" 2>&1 || { fail "the run that is not killed"; exit 1; }

saved=0
finished=0
during_saves=0
lock_ups=0
slowest_ms=0
set_command run
while [[ $killed -lt $kills || $finished -eq 0 ]]; do
  left=$(leftovers)
  "${command[@]}" >"$work/log" 2>&1 &
  job=$!
  ended=false
  if [[ $killed -lt $kills ]]; then wait_for_moment "$job"; fi
  if [[ $killed -lt $kills ]] && kill -0 "$job" 2>/dev/null; then
    mapfile -t pids < <(ranks_of "$job")
    shared=$(shared_by "${pids[@]}")
    killed=$((killed + 1))
    if [[ $((killed / 4 % 2)) -eq 0 || ${#pids[@]} -eq 0 ]]; then
      kill -9 "$job" "${pids[@]}" 2>/dev/null
    else
      kill -9 "${pids[RANDOM % ${#pids[@]}]}" 2>/dev/null
    fi
    wait_gone "${pids[@]}" || fail "ranks are not gone after 15 s"
    if ! wait_gone "$job"; then
      # Open MPI's PMIx server may hang if a rank dies while connecting to it.
      if grep -q 'PMIX ERROR' "$work/log"; then
        lock_ups=$((lock_ups + 1))
      else
        fail "mpirun is not gone after 15 s"
      fi
      kill -9 "$job"
    fi
    wait "$job" 2>/dev/null
    for name in $shared; do
      [[ ! -e $name ]] || fail "$name is still there"
    done
    if [[ -n $(leftovers) ]]; then during_saves=$((during_saves + 1)); fi
  else
    wait "$job"
    code=$?
    [[ $code -eq 0 ]] || fail "the run ended with $code"
    ended=true
  fi
  # The log lacks this line if the run was killed before it resumed.
  resumed=$(sed -nE 's/^resumed from .* after ([0-9]+) steps$/\1/p' "$work/log")
  if [[ -n $resumed ]]; then
    [[ $resumed -ge $saved ]] || fail "resumed after step $resumed, step $saved was saved"
    for name in $left; do
      [[ ! -e $work/run/checkpoints/$name ]] || fail "$name is still there after the next start"
    done
  elif [[ $saved -gt 0 ]] && grep -q '^step ' "$work/log"; then
    fail "trained from the start, step $saved was saved"
  fi
  now=$(sed -nE 's/^saved step ([0-9]+)$/\1/p' "$work/log" | tail -n 1)
  if [[ -n $now ]]; then saved=$now; fi
  # If the run ended (perhaps with nothing left to do) or was killed after its last checkpoint, the
  # metrics must include the row of the last step.
  if $ended || grep -q "^saved step $steps$" "$work/log"; then
    check_end
    finished=$((finished + 1))
    saved=0
    rm -rf "$work/run"
  fi
done

echo "$killed kills, $during_saves of them during a save, $finished runs to the end, $lock_ups times" \
  "mpirun locked up, gone after at most $slowest_ms ms, $failures failures (seed $seed)"
[[ $failures -eq 0 ]]
