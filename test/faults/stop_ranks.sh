#!/usr/bin/env bash
# stop_ranks.sh [TIMES]: sends SIGTERM to a rank or SIGUSR1 to mpirun at random times of a run,
# TIMES times (default 4). Each time all ranks must save together and mpirun must return 75, and the
# run must be resumable. In the end every step exists once, with the losses of an undisturbed run.
source "$(dirname "${BASH_SOURCE[0]}")/../support/cli.sh"

times=${1:-4}
yes 'a line of text to learn from' | head -n 300 >"$work/text.txt"

steps=100000
train() {  # FOLDER FLAG...: trains on two ranks
  local folder=$1
  shift
  exec mpirun --oversubscribe --bind-to none -np 2 "$BIN_DIR/train_lm" --data "$work/text.txt" \
    --layers 1 --width 32 --heads 2 --seq-len 16 --micro-batch 1 --threads 1 --schedule constant \
    --warmup-steps 0 --out "$work/$folder" "$@" >>"$work/output" 2>&1
}
field() { grep -o "\"$1\": [^,}]*" "$work/run/status.json" | head -n 1 | sed 's/.*: //; s/"//g'; }
rows() { grep -c '"loss"' "$work/run/metrics.jsonl" 2>/dev/null || true; }  # counts rows of steps

last=0
for i in $(seq "$times"); do
  : >"$work/output"
  before=$(rows)
  (train run --steps $steps --resume auto) &
  launcher=$!
  for _ in $(seq 600); do  # waits until the run trains
    [[ $(rows) -gt $before ]] && break
    sleep 0.02
  done
  sleep "0.$(printf '%03d' $((RANDOM % 300)))"
  if [[ $((RANDOM % 3)) -eq 0 ]]; then
    kill -USR1 $launcher  # mpirun forwards it to both ranks
  else
    kill -TERM "$(pgrep -P $launcher -x train_lm | shuf -n 1)"  # the rank informs the other one
  fi
  wait $launcher
  code=$?
  [[ $code -eq 75 ]] || fail "stop $i: exit code $code, expected 75"
  [[ $(field state) == saved ]] || fail "stop $i: status.json says $(field state)"
  step=$(field checkpoint_step)
  [[ $step -gt $last && $step -eq $(rows) ]] ||
    fail "stop $i: saved step $step after $last, with $(rows) rows"
  last=$step
done

: >"$work/output"
(train run --steps $((last + 5)) --resume auto) || fail 'the last part failed'
(train plain --steps $((last + 5))) || fail 'the plain run failed'
losses() { grep -o '"step": [0-9]*, "loss": [^,]*, "loss_bits": "[^"]*"' "$work/$1/metrics.jsonl"; }
cmp -s <(losses plain) <(losses run) || fail 'the losses are not those of an undisturbed run'
[[ $(losses run | wc -l) -eq $((last + 5)) ]] || fail "not $((last + 5)) rows"
# If a step takes a second or more, it is dropped between two of its micro-batches. The layouts
# exchange data at different times: DDP at the end of the step, ZeRO-3 in each micro-batch.
for zero in 0 3; do
  for sequences in 128 256 512 1024; do  # until a step takes long enough on this machine
    : >"$work/output"
    rm -rf "$work/plain$zero"
    long=(--steps 4 --width 192 --layers 2 --seq-len 128 --global-batch $sequences)
    (train "plain$zero" "${long[@]}" --zero $zero) || fail "the plain run of --zero $zero failed"
    step_ms=$(sed -nE 's/.*"step": 2,.*"step_ms": ([0-9]+).*/\1/p' "$work/plain$zero/metrics.jsonl")
    [[ $step_ms -lt 1400 ]] || break
  done
  rm -rf "$work/run"
  (train run "${long[@]}" --zero $zero) &
  launcher=$!
  # a row is written two steps later, when the results have arrived
  until [[ $(rows) -ge 1 ]]; do sleep 0.05; done
  sleep 0.2
  started=$(date +%s%3N)
  signal=$([[ $zero -eq 0 ]] && echo TERM || echo USR2)
  kill -$signal "$(pgrep -P $launcher -x train_lm | tail -n 1)"
  wait $launcher
  code=$?
  took=$(($(date +%s%3N) - started))
  [[ $code -eq 75 ]] || fail "--zero $zero: exit code $code, expected 75"
  # Ranks vote every 0.25 s, or at each micro-batch if that takes longer. The rest of the limit is
  # for saving and ending. Finishing this step and the next one would take two steps.
  limit=$((3000 + step_ms / 3))
  [[ $took -lt $limit && $(rows) -eq 2 ]] ||
    fail "--zero $zero: saved after $took ms and $(rows) steps, expected $limit ms and 2"
  (train run "${long[@]}" --zero $zero --resume auto) || fail "--zero $zero: does not resume"
  cmp -s <(losses "plain$zero") <(losses run) || fail "--zero $zero: other losses than undisturbed"
  echo "--zero $zero: saved after $took ms, in steps of $step_ms ms"
done
echo "$times stops, $last steps, $failures failures"
exit $((failures > 0))
