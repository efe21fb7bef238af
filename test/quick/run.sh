#!/usr/bin/env bash
# Checks the claims of the README with train_lm, one check each, in a few minutes. Prints for each
# what was found and how long it took. Called by ./test.sh --quick, which builds the programs.
#
#   test/quick/run.sh FOLDER_OF_PROGRAMS
source "$(dirname "${BASH_SOURCE[0]}")/../support/cli.sh"
BIN_DIR=$(cd "$1" && pwd)
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
shown=("$work/stdout" "$work/stderr")
passed=0

# claim FUNCTION WORDS...: runs a check. It prints what it found and returns 0, or fails.
claim() {
  local check=$1 before=$failures start=$SECONDS
  shift
  echo "---- $*"
  "$check"
  if [[ $failures -eq $before ]]; then
    passed=$((passed + 1))
    echo "     passed, $((SECONDS - start)) s"
  fi
}
found() { echo "     $*"; }
# last_loss NAME: prints the loss of the last step.
last_loss() { losses "$1" | tail -n 1 | cut -d' ' -f2; }

for i in $(seq 3000); do echo "line $i of a text; the square of $i is $((i * i))"; done >"$work/text.txt"
text=(--data "$work/text.txt" --layers 2 --width 64 --heads 4 --seq-len 64 --threads 1)

zero_stages() {
  common=("${text[@]}" --global-batch 8 --micro-batch 2 --steps 20 --reproducible)
  trains one 1
  local stage
  for stage in 0 1 2 3; do
    trains "zero$stage" 2 --zero "$stage"
    same "zero$stage" one
  done
  found "20 losses, to the last bit the same; the last one is $(last_loss one)"
}

axes() {
  common=("${text[@]}" --global-batch 8 --micro-batch 2 --steps 8)
  trains alone 1
  local axis
  for axis in tensor pipeline context; do
    trains "$axis" 2 "--$axis" 2
    close "$axis" alone 8
    found "--$axis 2: last loss $(last_loss "$axis"), on one rank $(last_loss alone)"
  done
  common=(--data "$work/text.txt" --model moe-nano --layers 2 --width 32 --heads 4 --seq-len 32
    --threads 1 --global-batch 4 --micro-batch 1 --steps 6)
  trains moe 1
  trains expert 2 --expert 2
  close expert moe 6
  found "--expert 2: last loss $(last_loss expert) of an MoE model, on one rank $(last_loss moe)"
}

kill_and_resume() {
  common=("${text[@]}" --global-batch 8 --micro-batch 2 --steps 120 --save-every 10 --keep 0)
  trains whole 2
  # Kills all processes with SIGKILL as soon as there is a checkpoint of step 10.
  timeout 120 mpirun --oversubscribe --bind-to none -np 2 "$BIN_DIR/train_lm" "${common[@]}" \
    --out "$work/killed" >"$work/stdout" 2>"$work/stderr" &
  local launcher=$!
  until [[ -d $work/killed/checkpoints/step_00000010 ]] || ! kill -0 $launcher 2>/dev/null; do
    sleep 0.02
  done
  pkill -KILL -f "train_lm .*--out $work/killed"
  wait $launcher 2>/dev/null
  local reached
  reached=$(rows killed | tail -n 1 | cut -d' ' -f1)
  [[ $reached -lt 120 ]] || fail "the run ended before it was killed"
  trains killed 2 --resume auto
  same killed whole
  found "killed at step $reached, resumed; 120 losses, to the last bit those of the run without a stop"
}

float64() {
  # The data is the four windows of test/oracles/gpt2_training.py, as 16-bit tokens. Each window is
  # a data source of its own, so that every step uses all four.
  local window i
  for window in 0 1 2 3; do
    mkdir "$work/window$window"
    for ((i = 32 * window; i <= 32 * window + 32; ++i)); do
      printf "\\x$(printf %x $(((7 * i * i + 3 * i) % 96)))\\0"
    done | tee "$work/window$window/train.bin" >"$work/window$window/val.bin"
  done
  common=(--data "$work/window0,$work/window1,$work/window2,$work/window3" --seq-len 32
    --init "$here/../fixtures/gpt2/hf_tiny" --global-batch 4 --micro-batch 2 --threads 1 --steps 10
    --lr 1e-3 --schedule constant --warmup-steps 0 --beta1 0.9 --beta2 0.95 --eps 1e-8
    --weight-decay 0.1 --clip 1)
  trains f64 2 --zero 3
  paste -d' ' <(losses f64) "$here/../oracles/gpt2_training.txt" >"$work/pairs"
  awk '{ d = ($2 - $4) / $4; d = d < 0 ? -d : d; if (d > most) most = d; n += $1 == $3 }
    END { printf "%.1e\n", most; exit n != 10 || most > 5e-7 }' "$work/pairs" >"$work/most" ||
    { fail "losses are not those of float64"; cat "$work/pairs"; }
  found "10 steps of AdamW in fp32, two ranks with ZeRO-3: largest relative difference from JAX in" \
    "float64 $(cat "$work/most")"
}

export_read_back() {
  common=("${text[@]}" --global-batch 8 --micro-batch 2 --eval-samples 32)
  trains trained 1 --steps 20 --eval-every 20 --export "$work/model"
  common=(--data "$work/text.txt" --init "$work/model" --seq-len 64 --threads 1 --micro-batch 2
    --global-batch 8 --eval-samples 32)
  trains again 2 --zero 3 --steps 0 --eval-every 1 --export "$work/second"
  cmp -s "$work/model/model.safetensors" "$work/second/model.safetensors" ||
    fail "model.safetensors changed on its way through a run"
  found "$(ls "$work/model" | tr '\n' ' ')written; read by two ranks and written again: the same bytes"
}

lost_rank() {
  common=("${text[@]}" --global-batch 8 --micro-batch 2 --steps 100000 --timeout 5)
  timeout 60 mpirun --oversubscribe --bind-to none -np 2 "$BIN_DIR/train_lm" "${common[@]}" \
    --out "$work/stopped" >"$work/stdout" 2>"$work/stderr" &
  local launcher=$! ranks
  until [[ $(rows stopped 2>/dev/null | wc -l) -gt 3 ]] || ! kill -0 $launcher 2>/dev/null; do
    sleep 0.05
  done
  ranks=($(pgrep -f "^$BIN_DIR/train_lm .*--out $work/stopped"))
  kill -STOP "${ranks[1]}"
  wait $launcher
  kill -CONT "${ranks[1]}" 2>/dev/null
  grep -hE 'rank 1' "$work/stderr" | head -n 1 >"$work/word"
  [[ -s $work/word ]] || fail "no word of rank 1, which was stopped"
  found "a stopped rank: $(cut -c1-150 "$work/word")"
}

mistake() {
  "$BIN_DIR/train_lm" --data "$work/text.txt" --widht 64 >"$work/stdout" 2>"$work/stderr"
  local code=$?
  [[ $code -eq 64 && $(wc -l <"$work/stderr") -eq 1 ]] || fail "exit code $code"
  found "exit code 64: $(cat "$work/stderr")"
}

race() {
  "$BIN_DIR/find_race" >"$work/stdout" 2>&1 || fail "find_race: exit code $?"
  sed 's/^/     /' "$work/stdout" | cut -c1-200
}

claim zero_stages "ZeRO 0, 1, 2 and 3 on two ranks have the losses of one rank"
claim axes "tensor, pipeline, context and expert parallelism train on CPU ranks"
claim kill_and_resume "a killed run resumes with the same bits"
claim float64 "training agrees with float64"
claim export_read_back "an exported model is read back"
claim lost_rank "a rank that hangs is named by the others"
claim mistake "a mistake is one line and a documented exit code"
claim race "the emulator finds a data race"

echo "$passed passed, $failures failed"
[[ $failures -eq 0 ]]
