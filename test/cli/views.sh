#!/usr/bin/env bash
# Tests the outputs of a stopped and resumed run. Event files and metrics.jsonl have each step once,
# the Prometheus file has the newest step, and shale report, watch and metrics read the run.
source "$(dirname "${BASH_SOURCE[0]}")/../support/cli.sh"

yes 'a line of text to learn from' | head -n 200 >"$work/text.txt"
out=$work/out

train() {  # arguments: FLAG...
  timeout -k 5 120 "$BIN_DIR/train_lm" --data "$work/text.txt" --layers 1 --width 32 --heads 2 \
    --seq-len 16 --micro-batch 1 --threads 1 --lr 1e-3 --warmup-steps 0 --schedule constant \
    --out "$out" --tensorboard --prometheus "$work/shale.prom" --save-every 4 --eval-every 4 \
    --sample-tokens 4 "$@" >"$work/output" 2>&1 ||
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
# The name of the loss occurs once more, in the table of hyper-parameters.
[[ $(events loss/train) == 13 ]] || fail "event files: loss/train $(events loss/train) times"
[[ $(events loss/validation) == 4 ]] || fail "loss/validation $(events loss/validation) times"
[[ $(events _hparams_/session_start_info) == 1 ]] || fail 'options more than once'
[[ $(events _hparams_/session_end_info) == 1 ]] || fail 'more than one end'
[[ $(events samples/end/text_summary) == 2 ]] || fail 'event files: not the samples of 4 and 12'
steps=$(grep -oE '^."step":[0-9]+' "$out/samples.jsonl" | tr -dc '0-9\n' | xargs)
[[ $steps == '4 12' ]] || fail "samples.jsonl: has those of $steps, expected 4 and 12"
grep -q '"steps": 12' "$out/config.json" || fail 'config.json: not the steps'
starts=$(sed -E 's/^[{]"step": ([0-9]+), "ranks": 1, "time": "[0-9TZ:.-]+", "device": "cpu", "parameters": 21472[}]$/\1/' \
  "$out/starts.jsonl" | xargs)
[[ $starts == '0 4 8 12' ]] || fail "starts.jsonl: has $starts, expected 0 4 8 12"
grep -q '^shale_step{run=".*"} 12$' "$work/shale.prom" || fail 'Prometheus: not step 12'

# Reads the event files with TensorBoard itself, if python3 has it.
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
# The page is drawn from one JSON document, which test/cli/report_browser.sh looks at in a browser.
sed -nE 's/^<script id="feed"[^>]*>(.*)<.script>$/\1/p' "$work/report.html" >"$work/feed.json"
feed() { "$JSON_VALUE" "$work/feed.json" "$1"; }
[[ $(feed /runs/0/about/name) == "\"$out\"" ]] || fail 'report: another name'
[[ $(feed /runs/0/about/state) == '"done"' ]] || fail 'report: not done'
[[ $(feed /runs/0/columns/loss/steps/11) == 12 ]] || fail 'report: not the losses of 12 steps'
[[ $(feed /runs/0/columns/val_loss/steps/1) == 8 ]] || fail 'report: not the validations'
[[ $(feed /runs/0/about/samples/newest/1/step) == 12 ]] || fail 'report: no sample of step 12'
[[ $(feed /runs/0/about/starts/newest/2/step) == 8 ]] || fail 'report: no word of the start from step 8'
[[ $(feed /runs/0/about/checkpoints) == '[8,12]' ]] || fail 'report: not the checkpoints'
[[ $(feed /runs/0/about/options/steps) == 12 ]] || fail 'report: not the options'
[[ $(feed /runs/1/differs_at) == null ]] || fail 'report: the same losses differ'
[[ $(tail -n 1 "$work/report.html") == '</html>' ]] || fail 'report: no end'
"$BIN_DIR/shale" report >"$work/output" 2>&1
[[ $? == 64 ]] || fail 'report of nothing: expected exit code 64'
"$BIN_DIR/shale" report "$work" >"$work/output" 2>&1
[[ $? == 66 ]] || fail 'report of no run: expected exit code 66'

# If the output is not a terminal, the page is printed once, without colours.
"$BIN_DIR/shale" watch "$out" >"$work/output" 2>&1 || fail "watch: exit code $?"
grep -q 'Loss, o: validation, steps 1 to 12' "$work/output" || fail 'watch: no curve'
grep -q 'out: done' "$work/output" || fail 'watch: the run is done'
grep -q $'\e' "$work/output" && fail 'watch: drives a terminal that is none'

"$BIN_DIR/shale" metrics "$out" --csv >"$work/metrics.csv" 2>"$work/output" || fail 'no CSV'
[[ $(head -n 1 "$work/metrics.csv") == step,loss,loss_bits,* ]] || fail 'CSV: another header'
[[ $(wc -l <"$work/metrics.csv") == $(($(wc -l <"$out/metrics.jsonl") + 1)) ]] || fail 'CSV: rows'

# The tools distinguish a killed run from one that trains, and from one that has not started yet.
out=$work/killed
mkdir "$out"
"$BIN_DIR/shale" watch "$out" >"$work/output" 2>&1
[[ $? == 66 ]] || fail 'watch of no run: expected exit code 66'
"$BIN_DIR/train_lm" --data "$work/text.txt" --layers 1 --width 32 --heads 2 --seq-len 16 \
  --micro-batch 1 --threads 1 --steps 1000000 --out "$out" >"$work/output" 2>&1 &
trainer=$!
for ((i = 0; i < 300; ++i)); do
  [[ -s $out/metrics.jsonl ]] && break
  sleep 0.1
done
"$BIN_DIR/shale" watch "$out" >"$work/output" 2>&1 || fail "watch: exit code $?"
grep -q 'killed: running' "$work/output" || fail 'watch: the run trains'
grep -q 'of 1000000, 0%' "$work/output" || fail 'watch: not how many steps are left'

# ask REQUEST: prints the answer of the live page's server.
"$BIN_DIR/shale" watch "$out" --web --every 0.2 >"$work/web" 2>&1 &
server=$!
for ((i = 0; i < 100; ++i)); do grep -q open "$work/web" && break; sleep 0.1; done
port=$(grep -o '127.0.0.1:[0-9]*' "$work/web" | cut -d : -f 2)
ask() {
  exec 3<>"/dev/tcp/127.0.0.1/$port" && printf "$1"'\r\n\r\n' >&3 && cat <&3
  exec 3>&-
}
shown=("$work/web" "$work/answer")
ask 'GET / HTTP/1.1' >"$work/answer"
grep -q '^<!doctype html>' "$work/answer" || fail 'live page: no page'
ask 'GET /feed.json HTTP/1.1\r\nHost: localhost' >"$work/answer"
grep -q '"state":"running"' "$work/answer" || fail 'live page: does not run'
ask 'GET /feed.json HTTP/1.1\r\nHost: evil.example' | grep -q '^HTTP/1.1 403' ||
  fail 'live page: answers a page of another site'
ask 'POST / HTTP/1.1' | grep -q '^HTTP/1.1 405' || fail 'live page: takes a POST'
ask 'GET /../metrics.jsonl HTTP/1.1' | grep -q '^HTTP/1.1 404' || fail 'live page: serves files'
kill -KILL $trainer && wait $trainer 2>/dev/null
sleep 1
ask 'GET /feed.json HTTP/1.1' >"$work/answer"
grep -q '"state":"killed"' "$work/answer" || fail 'live page: was not killed'
kill -TERM $server && wait $server || fail "watch --web: exit code $? after SIGTERM"
shown=("$work/output")
"$BIN_DIR/shale" watch "$out" >"$work/output" 2>&1 || fail "watch: exit code $?"
grep -q 'killed: killed, no process writes' "$work/output" || fail 'watch: the run was killed'

# The peak host memory must be that of the run, not of its launcher.
out=$work/small
perl -e '$large = "x" x 400e6; exec @ARGV' "$BIN_DIR/train_lm" --data "$work/text.txt" --layers 1 \
  --width 32 --heads 2 --seq-len 16 --micro-batch 1 --threads 1 --steps 1 --out "$out" \
  >"$work/output" 2>&1 || fail "started by a large process: exit code $?"
peak=$(sed -nE 's/.*"host_peak_bytes": ([0-9]+).*/\1/p' "$out/metrics.jsonl" | head -n 1)
[[ $peak -gt 10000000 && $peak -lt 400000000 ]] || fail "host_peak_bytes: $peak"

finish
