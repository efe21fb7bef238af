#!/usr/bin/env bash
# Tests what ends a run: --epochs, alone and with --steps, and --patience. A resumed run ends at the
# same step as a run that never stopped, on any number of ranks.
source "$(dirname "${BASH_SOURCE[0]}")/../support/cli.sh"
shown=("$work/stdout" "$work/stderr")

for i in $(seq 300); do echo "line $i of a text"; done >"$work/text.txt"
common=(--data "$work/text.txt" --layers 1 --width 32 --heads 2 --seq-len 16 --global-batch 16
  --micro-batch 4 --threads 1 --reproducible --keep 0)
steps_of() { rows "$1" | wc -l; }
epochs_at() {  # NAME STEP
  sed -nE "s/^\{\"step\": $2, .*\"epoch\": ([0-9.]+).*/\1/p" "$work/$1/metrics.jsonl"
}

# ---- Epochs ----

trains two 1 --epochs 2 --save-every 10
steps=$(steps_of two)
awk -v before="$(epochs_at two $((steps - 1)))" -v at="$(epochs_at two "$steps")" \
  'BEGIN { exit !(before < 2 && at >= 2 && before > 1) }' ||
  fail "--epochs 2 ends after $steps steps, $(epochs_at two "$steps") epochs"
grep -q "done: $steps steps" "$work/stdout" || fail 'the end does not say the steps'
grep -q '| epoch 2\.0' "$work/stdout" || fail 'the progress line has no epoch'
trains as_steps 1 --steps "$steps"
same two as_steps
trains ranks 2 --epochs 2
same ranks two
trains smaller 1 --epochs 2 --steps 7
[[ $(steps_of smaller) -eq 7 ]] || fail "--epochs 2 --steps 7: $(steps_of smaller) steps"
trains part 1 --epochs 0.5 --steps 1000
[[ $(steps_of part) -eq $(((steps + 3) / 4)) ]] || fail "--epochs 0.5: $(steps_of part) steps of $steps"
trains ramp 1 --epochs 2 --batch-ramp 8:10
[[ $(steps_of ramp) -eq $((steps + 5)) ]] || fail "a ramp: $(steps_of ramp) steps of $steps"
trains resumed 1 --epochs 2 --resume "$work/two/checkpoints/step_00000010"
[[ $(rows resumed) == "$(rows two | tail -n +11)" ]] || fail 'a resumed run has other losses'
run_training 1 two --epochs 3 --resume auto
[[ $code -eq 64 ]] && grep -q 'steps was' "$work/stderr" || fail "more epochs of a cosine: $code"
run_training 1 none --epochs 0.5 --epoch 1
[[ $code -eq 64 ]] && grep -q 'use --epochs' "$work/stderr" || fail "--epoch: $code"
if [[ -x $BIN_DIR/train_image ]]; then
  "$BIN_DIR/train_image" --data shapes --made-images 24 --pixels 32 --model vit-nano --epochs 2 \
    --micro-batch 8 --threads 1 --no-save --out "$work/images" >"$work/stdout" 2>"$work/stderr"
  [[ $? -eq 0 && $(steps_of images) -eq 6 ]] || fail "images: $(steps_of images) steps"
fi

# ---- Patience: without a learning rate, no validation is better than the first ----

patient=(--lr 0 --steps 100 --eval-every 2 --eval-samples 8 --save-every 2)
trains ended 1 "${patient[@]}" --patience 3
[[ $(steps_of ended) -eq 8 ]] || fail "--patience 3 ends after $(steps_of ended) steps, expected 8"
grep -qE 'done: 8 steps in .*, ended by --patience 3; best validation loss .* at step 2' \
  "$work/stdout" || fail 'the end does not say why'
grep -q '"state": "done"' "$work/ended/status.json" || fail 'status.json is not done'
[[ -e $work/ended/checkpoints/step_00000008 ]] || fail 'the last step is not saved'
trains ended_ranks 2 "${patient[@]}" --patience 3
same ended_ranks ended
trains ended_resumed 1 "${patient[@]}" --patience 3 --resume "$work/ended/checkpoints/step_00000004"
[[ $(rows ended_resumed) == "$(rows ended | tail -n +5)" ]] ||
  fail "a resumed run ends elsewhere: $(rows ended_resumed)"
trains ended 1 "${patient[@]}" --patience 3 --resume auto
[[ $(steps_of ended) -eq 8 ]] || fail 'a run that is over goes on'
trains ended 1 "${patient[@]}" --patience 5 --resume auto
[[ $(steps_of ended) -eq 12 ]] || fail "more patience: $(steps_of ended) steps, expected 12"
run_training 1 none --patience 3
[[ $code -eq 64 ]] && grep -q -- '--eval-every' "$work/stderr" || fail "without validations: $code"

# On a terminal, every line fits the width. Lines printed during training have the time that is
# left. A log gets whole lines.
screen() {  # COLUMNS COMMAND...: prints what a terminal of that width shows
  local columns=$1
  shift
  COLUMNS='' script -qec "stty cols $columns; exec $*" /dev/null </dev/null 2>&1 |
    tr '\r' '\n' | sed 's/\x1b\[[0-9;]*[A-Za-z]//g' >"$work/stdout"
}
narrow=("$BIN_DIR/train_lm" "${common[@]}" --steps 1000 --no-save)
for command in "${narrow[*]}" "$BIN_DIR/shale train lm --ranks 2 ${narrow[*]:1}"; do
  screen 80 "$command" --out "$work/narrow"
  rm -rf "$work/narrow"
  grep -E '^step +1000/1000' "$work/stdout" | awk 'length > 79 { wide = 1 } END { exit wide || NR == 0 }' ||
    fail "lines wider than 79 columns of $command"
  grep -qE '^step +[0-9]+/1000.* epoch .* lr .* norm .* left$' "$work/stdout" ||
    fail "no line with what a narrow terminal keeps: $command"
done
screen 200 "${narrow[*]}" --out "$work/wide"
grep -qE '^step 1000/1000 100% .*tok/s .*mem ' "$work/stdout" || fail 'a wide terminal lacks something'

finish
