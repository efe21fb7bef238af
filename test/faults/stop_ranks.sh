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
echo "$times stops, $last steps, $failures failures"
exit $((failures > 0))
