#!/usr/bin/env bash
# Tests a recipe with Muon, weight averaging, outlier skipping and a batch-size ramp. Resuming on
# another layout gives the same losses and states. The exported average is the one that was
# evaluated.
source "$(dirname "${BASH_SOURCE[0]}")/../support/cli.sh"
shown=("$work/stdout" "$work/stderr")

train="$BIN_DIR/train_lm"
shale="$BIN_DIR/shale"
for i in $(seq 2000); do echo "line $i of a text that is long enough"; done >"$work/text.txt"

data=(--data "$work/text.txt" --seq-len 32 --threads 1)
recipe=("${data[@]}" --layers 1 --width 32 --heads 2 --micro-batch 1 --global-batch 4
  --batch-ramp 4:3,8:4,16:57 --schedule constant --steps 72 --keep 0 --eval-every 36 --reproducible --optimizer muon --ema 0.8
  --skip-outliers 0.1 --lr 0.05 --warmup-steps 1)

# run PROCESSES OUT FLAGS...: sets `code` to the exit code.
run() {
  launch "$1" "$train" "${recipe[@]}" --out "$work/$2" "${@:3}" >"$work/stdout" 2>"$work/stderr"
  code=$?
}

# rows OUT FROM: prints, for steps after FROM, the values that must not depend on where a run is
# resumed.
rows() { grep -oE '"step": [0-9]+|"(loss_bits|val_loss|ema_val_loss|grad_norm|tokens|outlier_steps)": [^,}]+' \
  "$work/$1/metrics.jsonl" | awk -v from="$2" '$1 == "\"step\":" { on = $2 > from } on'; }

same_end() {
  local a="$work/$1/checkpoints/step_00000072" b="$work/$2/checkpoints/step_00000072"
  timeout 60 "$shale" ckpt diff "$a" "$b" >"$work/stdout" 2>"$work/stderr"
}

# Outlier detection starts after 64 steps; smaller batches have more outliers.
run 2 whole --save-every 4
[[ $code -eq 0 ]] || fail "whole: exit code $code"
rows=$(rows whole 0)
[[ $(grep -c ema_val_loss <<<"$rows") -eq 2 ]] || fail "whole: expected two values of ema_val_loss"
[[ $(grep '"tokens"' <<<"$rows" | head -n 12 | tr -dc '0-9\n' | tr '\n' ' ') == \
  '128 256 384 640 896 1152 1408 1920 2432 2944 3456 3968 ' ]] ||
  fail 'whole: expected 3 steps of 4, 4 of 8 and then of 16 sequences of 32 tokens'
skipped=$(grep '"outlier_steps"' <<<"$rows" | tail -n 1 | tr -dc '0-9')
[[ $skipped -ge 1 && $skipped -le 8 ]] || fail "whole: $skipped steps were skipped"
grep -q 'standard deviations above the mean' "$work/stdout" || fail 'whole: no word of a skipped step'

# goes_on STEP RANKS FLAGS...: resumes at STEP and compares with the whole run.
goes_on() {
  local step=$1 ranks=$2 name="from$1on$2"
  shift 2
  run "$ranks" "$name" --resume "$work/whole/checkpoints/$(printf step_%08d "$step")" "$@"
  [[ $code -eq 0 ]] || { fail "$name: exit code $code"; return; }
  [[ $(rows "$name" "$step") == $(rows whole "$step") ]] || fail "$name: other rows than without a stop"
  same_end "$name" whole || fail "$name: another state at the end"
}
goes_on 4 1 --offload optimizer
goes_on 8 4 --zero 3
goes_on 68 2 --zero 2 --offload optimizer

# The exported average is the one that was evaluated.
timeout 60 "$shale" ckpt export "$work/whole" --ema --out "$work/average" >"$work/stdout" 2>"$work/stderr" ||
  fail "export --ema: exit code $?"
timeout 60 "$train" "${data[@]}" --init "$work/average" --micro-batch 1 --steps 0 --eval-every 1 \
  --out "$work/again" >"$work/stdout" 2>"$work/stderr" || fail "the average is not read: exit code $?"
value() { grep -oE "\"$2\": [^,]+" "$work/$1/metrics.jsonl" | tail -n 1 | cut -d' ' -f2; }
[[ -n $(value again val_loss) && $(value again val_loss) == $(value whole ema_val_loss) ]] ||
  fail "the average has a loss of $(value again val_loss), was $(value whole ema_val_loss)"
[[ $(value whole ema_val_loss) != $(value whole val_loss) ]] || fail 'the average is no average'

# Blocks of every family have weight matrices that Muon can update.
for model in llama-nano moe-nano; do
  timeout 120 "$train" "${data[@]}" --model $model --micro-batch 2 --steps 3 --optimizer muon --no-save \
    --out "$work/$model" >"$work/stdout" 2>"$work/stderr" || fail "$model with muon: exit code $?"
done

finish
