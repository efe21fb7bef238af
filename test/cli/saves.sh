#!/usr/bin/env bash
# Tests which checkpoints a run keeps, the commands around saves, and the memory that saves need.
source "$(dirname "${BASH_SOURCE[0]}")/../support/cli.sh"
shown=("$work/stdout" "$work/stderr")

for i in $(seq 2000); do echo "line $i of a text that is long enough"; done >"$work/text.txt"
common=(--data "$work/text.txt" --layers 1 --width 32 --heads 2 --seq-len 32 --micro-batch 1
  --threads 1 --steps 12)
steps_of() { ls "$work/$1/checkpoints" | sed -n 's/^step_0*//p' | xargs; }

# ---- What is kept ----

run_training 2 every --save-every 2 --keep 1 --keep-every 4
[[ $code -eq 0 && $(steps_of every) == '4 8 12' ]] || fail "--keep-every: $(steps_of every)"
run_training 2 best --eval-every 1 --keep 1 --keep-best --lr 0.05 --schedule constant --clip 0
best=$(sed -nE 's/.*best validation loss [0-9.]+ at step ([0-9]+).*/\1/p' "$work/stdout")
[[ $code -eq 0 && $best -lt 12 && $(steps_of best) == "$best 12" ]] ||
  fail "--keep-best: $(steps_of best), the best is $best"
run_training 1 none --keep-best
[[ $code -eq 64 ]] && grep -q -- '--keep-best has no effect without --eval-every' "$work/stderr" ||
  fail '--keep-best without validations'

# ---- Commands ----

# The command is slower than a step, so it is called only for the newest checkpoint. It may start a
# program with several ranks.
after='echo "$SHALE_STEP $SHALE_HOST $(basename $SHALE_CHECKPOINT)" >>'$work/after'; sleep 0.3;'
after+=" $BIN_DIR/shale ckpt inspect \$SHALE_CHECKPOINT && $BIN_DIR/train_lm --data $work/text.txt"
after+=" --layers 1 --width 32 --heads 2 --seq-len 16 --steps 1 --no-save --out $work/inner"
run_training 2 uploads --save-every 1 --keep 1 --after-save "$after"
[[ $code -eq 0 ]] || fail "--after-save: exit code $code"
[[ $(tail -n 1 "$work/after") == "12 $(hostname) step_00000012" ]] || fail '--after-save: the last save'
grep -q 'step 1/1' "$work/uploads/after_save.log" || fail '--after-save: no program in it'
[[ $(wc -l <"$work/after") -lt 12 && $(steps_of uploads) == 12 ]] || fail '--after-save: all saves'
run_training 2 flaky --after-save "[ -e $work/again ] || ! touch $work/again"
[[ $code -eq 0 ]] && grep -q 'try 1 of 5, the next in 2s' "$work/stderr" || fail '--after-save: no retry'
run_training 2 six --save-every 6
run_training 2 uploads --resume auto --before-resume "rm -r \$SHALE_OUT/checkpoints/step_00000012;
  cp -r $work/six/checkpoints/step_00000006 \$SHALE_OUT/checkpoints/" --steps 12
[[ $code -eq 0 ]] && grep -q 'resumed from .*/step_00000006' "$work/stdout" || fail '--before-resume'
same uploads six
run_training 1 alone --before-resume true
[[ $code -eq 64 ]] || fail '--before-resume without --resume'

# ---- Memory ----

# If memory for saves is lacking, a run ends before its first step. The limits are on mapped memory.
large=(--layers 4 --width 256 --heads 2 --steps 1)
run_training 1 fits "${large[@]}"
limited() { (ulimit -v "$1" && shift && run_training 1 "$@"; exit "$code"); }
for ((kib = 60000; kib < 4000000; kib += kib / 40)); do
  limited $kib limited "${large[@]}" --no-save && break
done
rm -rf "$work/limited"
((kib += 12000))  # enough for the stack of the thread that writes, but not for a copy of the states
limited $kib limited "${large[@]}"
[[ $? -eq 71 ]] || fail "exit code with ulimit -v $kib and saves"
grep -q 'error: .* MiB' "$work/stderr" || fail 'no bytes in the error'
grep -q 'step 1/1' "$work/stdout" && fail 'trained without memory for the save'
finish
