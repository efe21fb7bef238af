#!/usr/bin/env bash
# Tests the outputs of a stopped and resumed run: event files and metrics.jsonl have each step once,
# the Prometheus file has the newest, and shale report, watch and metrics read them.
source "$(dirname "${BASH_SOURCE[0]}")/../support/cli.sh"

yes 'a line of text to learn from' | head -n 200 >"$work/text.txt"
out=$work/out

train() {  # arguments: FLAG...
  timeout -k 5 120 "$BIN_DIR/train_lm" --data "$work/text.txt" --layers 1 --width 32 --heads 2 \
    --seq-len 16 --micro-batch 1 --threads 1 --lr 1e-3 --warmup-steps 0 --schedule constant \
    --out "$out" --tensorboard --prometheus "$work/shale.prom" --save-every 4 --eval-every 4 \
    --sample-tokens 4 --tensorboard-histograms 4 "$@" >"$work/output" 2>&1 ||
    fail "train_lm $*: exit code $?"
}

# events WORD: counts a word in the event files.
events() { cat "$out"/tensorboard/* | grep -aoF -- "$1" | wc -l; }

train --steps 4
train --steps 10 --resume auto
rm -r "$out/checkpoints/step_00000010"  # makes training resume at step 8
train --steps 12 --resume auto
train --steps 12 --resume auto  # has nothing to train, but writes samples again

shown=("$work/output" "$out/metrics.jsonl")
[[ $(grep -c '"loss"' "$out/metrics.jsonl") == 12 ]] || fail 'metrics.jsonl: not 12 steps'
# The table of hyper-parameters contains the name of the loss once more.
[[ $(events train/loss) == 13 ]] || fail "event files: train/loss $(events train/loss) times"
[[ $(events validation/loss) == 4 ]] || fail "validation/loss $(events validation/loss) times"
[[ $(events _hparams_/session_start_info) == 1 ]] || fail 'options more than once'
[[ $(events _hparams_/session_end_info) == 1 ]] || fail 'more than one end'
for group in parameters gradients; do
  [[ $(events $group/h.0.ln_1.weight) == 3 ]] || fail "$group: not the histograms of 4, 8 and 12"
done
[[ $(events samples/end/text_summary) == 2 ]] || fail 'event files: not the samples of 4 and 12'
steps=$(grep -oE '^."step":[0-9]+' "$out/samples.jsonl" | tr -dc '0-9\n' | xargs)
[[ $steps == '4 12' ]] || fail "samples.jsonl: has those of $steps, expected 4 and 12"
grep -q '"steps": 12' "$out/config.json" || fail 'config.json: not the steps'
starts=$(sed -E 's/^[{]"step": ([0-9]+), "ranks": 1, "time": "[0-9TZ:.-]+"[}]$/\1/' \
  "$out/starts.jsonl" | xargs)
[[ $starts == '0 4 8 12' ]] || fail "starts.jsonl: has $starts, expected 0 4 8 12"
grep -q '^shale_step{run=".*"} 12$' "$work/shale.prom" || fail 'Prometheus: not step 12'

# Reads them with TensorBoard itself, if python3 in this shell has it.
if python3 -c 'import tensorboard' 2>/dev/null; then
  python3 "$(dirname "${BASH_SOURCE[0]}")/../fixtures/check_tensorboard.py" "$out" \
    >"$work/output" 2>&1 || fail 'TensorBoard reads something else'
else
  echo "skipped: python3 has no tensorboard, so nobody but Shale's own reader read event files"
fi

train --steps 2 --resume none --no-save --out "$work/other"
[[ -d $work/other/tensorboard ]] || fail 'no folder of the other run'

"$BIN_DIR/shale" report "$out" "$work/other" -o "$work/report.html" >"$work/output" 2>&1 ||
  fail "report: exit code $?"
grep -q 'samples/end, step 12' "$work/report.html" || fail 'report: no sample'
grep -q '>step 8<' "$work/report.html" || fail 'report: no word of the start from step 8'
grep -q 'Checkpoints: of steps 8, 12' "$work/report.html" || fail 'report: not the checkpoints'
grep -q 'Options that differ' "$work/report.html" || fail 'report: no differences'
[[ $(tail -n 1 "$work/report.html") == '</html>' ]] || fail 'report: no end'
"$BIN_DIR/shale" report >"$work/output" 2>&1
[[ $? == 64 ]] || fail 'report of nothing: expected exit code 64'
"$BIN_DIR/shale" report "$work" >"$work/output" 2>&1
[[ $? == 66 ]] || fail 'report of no run: expected exit code 66'

# If the output is not a terminal, the page is printed once, without colours.
"$BIN_DIR/shale" watch "$out" >"$work/output" 2>&1 || fail "watch: exit code $?"
grep -q 'Loss, steps 1 to 12' "$work/output" || fail 'watch: no curve'
grep -q $'\e' "$work/output" && fail 'watch: drives a terminal that is none'

"$BIN_DIR/shale" metrics "$out" --csv >"$work/metrics.csv" 2>"$work/output" || fail 'no CSV'
[[ $(head -n 1 "$work/metrics.csv") == step,loss,loss_bits,* ]] || fail 'CSV: another header'
[[ $(wc -l <"$work/metrics.csv") == $(($(wc -l <"$out/metrics.jsonl") + 1)) ]] || fail 'CSV: rows'

# The peak host memory must be that of the run, not of its launcher.
out=$work/small
perl -e '$large = "x" x 400e6; exec @ARGV' "$BIN_DIR/train_lm" --data "$work/text.txt" --layers 1 \
  --width 32 --heads 2 --seq-len 16 --micro-batch 1 --threads 1 --steps 1 --out "$out" \
  >"$work/output" 2>&1 || fail "started by a large process: exit code $?"
peak=$(sed -nE 's/.*"host_peak_bytes": ([0-9]+).*/\1/p' "$out/metrics.jsonl" | head -n 1)
[[ $peak -gt 10000000 && $peak -lt 400000000 ]] || fail "host_peak_bytes: $peak"

finish
