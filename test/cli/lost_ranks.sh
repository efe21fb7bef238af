#!/usr/bin/env bash
# Tests ranks that are lost: stopped, or killed without the launcher noticing. All other ranks name
# the lost rank, with its coordinate on each axis. They do not name ranks that merely wait for it,
# nor a rank that only starts late. REPEAT=20 repeats everything 20 times.
source "$(dirname "${BASH_SOURCE[0]}")/../support/cli.sh"
shown=("$work/stderr")

for i in $(seq 2000); do echo "line $i of a text that is long enough"; done >"$work/text.txt"
timeout_s=4
small=(--data "$work/text.txt" --layers 2 --width 32 --heads 4 --seq-len 32 --global-batch 8
  --micro-batch 1 --device cpu --threads 1 --no-save)

# A launcher ends a job when one of its child processes dies. This script runs between launcher and
# rank, and hides the rank's death.
cat >"$work/unseen" <<'END'
#!/usr/bin/env bash
"$@" &
trap 'kill -9 %1; exit 1' TERM
wait %1
code=$?
((code == 137)) && sleep 20 & wait $!
exit $code
END
chmod +x "$work/unseen"

# process_of RANK: prints the process of a rank of this run. It finds the rank in the process's
# environment, and $work in its command.
process_of() {
  local pid
  for pid in $(pgrep -f -- "^$BIN_DIR/train_lm .*--out $work/run"); do
    tr '\0' '\n' 2>/dev/null <"/proc/$pid/environ" | grep -qx "OMPI_COMM_WORLD_RANK=$1" && echo "$pid"
  done
  return 0
}

# loses SIGNAL RANKS LOST PLACE FLAGS...: starts a run and sends rank LOST the signal after some
# steps.
loses() {
  local signal=$1 ranks=$2 lost=$3 place=$4 launcher pid rank started named elapsed
  shift 4
  rm -rf "$work/run"
  timeout -k 5 120 mpirun --oversubscribe --bind-to none -np "$ranks" "$work/unseen" \
    "$BIN_DIR/train_lm" "${small[@]}" --steps 1000000 --timeout "$timeout_s" --out "$work/run" \
    "$@" >"$work/stdout" 2>"$work/stderr" &
  launcher=$!
  until grep -qs '"step": [3-9]' "$work/run/metrics.jsonl"; do
    kill -0 "$launcher" 2>/dev/null || { fail "$*: ended before it was disturbed"; return; }
    sleep 0.05
  done
  until pid=$(process_of "$lost") && [[ -n $pid ]]; do sleep 0.05; done
  sleep "0.$((RANDOM % 10))"
  started=$(date +%s%3N)
  kill "-$signal" "$pid"
  wait "$launcher"
  code=$?
  elapsed=$(($(date +%s%3N) - started))
  [[ $signal == STOP ]] && kill -9 "$pid" 2>/dev/null
  [[ $code -eq 76 ]] || fail "$signal $*: exit code $code, expected 76"
  for ((rank = 0; rank < ranks; ++rank)); do
    ((rank == lost)) && continue
    grep -qF "[rank $rank] no heartbeat from rank $lost$place for " "$work/run"/failure/*.txt ||
      fail "$signal $*: rank $rank does not name rank $lost$place"
  done
  # For any number of ranks, standard error has few lines, and the last one is the cause.
  local lines
  lines=$(grep -cE '^(\[rank|error:)' "$work/stderr")
  ((lines <= 5)) || fail "$signal $*: $lines lines of ranks on standard error, expected at most 5"
  (($(wc -l <"$work/stderr") <= 50)) || fail "$signal $*: more than 50 lines on standard error"
  grep -E '^(\[rank|error:)' "$work/stderr" | tail -n 1 | grep -q '^error: ' ||
    fail "$signal $*: the cause is not last"
  named=$(cat "$work/stderr" "$work/run"/failure/*.txt |
    grep -oE 'no (heartbeat from |message from |message from the node of )ranks? [0-9,]+' |
    sed 's/.* //' | sort -u | tr '\n' ' ')
  [[ $named == "$lost " ]] || fail "$signal $*: named ranks $named, expected $lost alone"
  [[ $(grep -c '^error: ' "$work/stderr") -eq 1 ]] || fail "$signal $*: not one line of error"
  ((elapsed < 1000 * timeout_s + 10000)) || fail "$signal $*: took $elapsed ms"
  echo "$signal of rank $lost of $ranks$place: named after $elapsed ms"
}

# Rank 1 starts three seconds after the others.
cat >"$work/late" <<'END'
#!/usr/bin/env bash
[[ $OMPI_COMM_WORLD_RANK == 1 ]] && sleep 3
exec "$@"
END
chmod +x "$work/late"
starts_late() {  # arguments: TIMEOUT FLAGS...
  rm -rf "$work/run"
  timeout -k 5 120 mpirun --oversubscribe --bind-to none -np 2 "$work/late" \
    "$BIN_DIR/train_lm" "${small[@]}" --steps 3 --timeout "$@" --out "$work/run" \
    >"$work/stdout" 2>"$work/stderr"
  code=$?
}
starts_late 2
[[ $code -eq 0 ]] || fail "a late rank: exit code $code, expected 0"
starts_late 0.1
[[ $code -eq 76 ]] || fail "a late rank, --timeout 0.1: exit code $code, expected 76"
grep -q 'not all ranks have joined 1 s after the start' "$work/stderr" ||
  fail "a late rank: no word of the start"

# A rank is asked to end while another rank is silent. It ends after 10 s, although more silence is
# allowed otherwise: if a rank is gone, srun asks the others to end, and kills them after 30 s.
rm -rf "$work/run"
timeout -k 5 120 mpirun --oversubscribe --bind-to none -np 2 "$work/unseen" "$BIN_DIR/train_lm" \
  "${small[@]}" --steps 1000000 --out "$work/run" >"$work/stdout" 2>"$work/stderr" &
launcher=$!
until grep -qs '"step": [3-9]' "$work/run/metrics.jsonl"; do sleep 0.05; done
kill -STOP "$(process_of 1)"
started=$(date +%s%3N)
kill -TERM "$(process_of 0)"
wait $launcher
code=$?
elapsed=$(($(date +%s%3N) - started))
kill -9 $(process_of 1) 2>/dev/null
[[ $code -eq 76 ]] || fail "asked to end: exit code $code, expected 76"
((elapsed > 9000 && elapsed < 25000)) || fail "asked to end: took $elapsed ms, expected about 10 s"
echo "asked to end while a rank is silent: ended after $elapsed ms"

for ((i = 0; i < ${REPEAT:-1}; ++i)); do
  loses STOP 4 2 ''
  loses KILL 4 1 ' (pipeline 0, tensor 1)' --tensor 2 --pipeline 2
  loses STOP 4 3 ' (pipeline 1, context 1)' --context 2 --pipeline 2
  loses KILL 4 2 ' (shard 2, expert 0)' --model moe-nano --expert 2
  loses STOP 8 5 ' (pipeline 1, context 0, tensor 1)' --tensor 2 --context 2 --pipeline 2
done
finish
