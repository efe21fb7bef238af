#!/usr/bin/env bash
# Tests --attention-pattern of train_lm. Losses must be the same under tensor and context
# parallelism and on emulated GPUs, and bit-identical with recomputation and after a resume. Invalid
# combinations are refused.
source "$(dirname "${BASH_SOURCE[0]}")/../support/cli.sh"
shown=("$work/stdout" "$work/stderr")

for i in $(seq 2000); do echo "line $i of a text that is long enough"; done >"$work/text.txt"
common=(--data "$work/text.txt" --model llama-nano --layers 1 --width 32 --heads 4 --hidden 32
  --seq-len 512 --global-batch 2 --micro-batch 1 --device cpu --threads 1 --steps 4 --keep 0)
echo '{"pattern": "bigbird", "local": 1}' >"$work/bigbird.json"
echo '{"pattern": "bigbird", "local": 1, "random": 2}' >"$work/random.json"
bigbird=(--attention-pattern "$work/bigbird.json")

losses() { sed -nE 's/^\{"step": [0-9]+, "loss": ([0-9.]+).*/\1/p' "$work/$1/metrics.jsonl"; }
bits() { sed -nE 's/^\{"step": .*"loss_bits": "([0-9a-f]*)".*/\1/p' "$work/$1/metrics.jsonl"; }
# follows NAME REFERENCE: run NAME succeeded, and its losses match REFERENCE up to rounding.
follows() {
  [[ $code -eq 0 ]] || { fail "$1: exit code $code"; return; }
  paste <(losses "$1") <(losses "$2" | head -n "$(losses "$1" | wc -l)") |
    awk '{ d = $1 - $2; if (d < 0) d = -d; if (d > 2e-4) bad = 1 } END { exit NR < 1 || bad }' ||
    fail "$1 does not follow $2"
}
same() {
  [[ -n $(bits "$1") && $(bits "$1") == "$(bits "$2")" ]] || fail "$1 has not the bits of $2"
}

run_training 1 dense
run_training 1 one "${bigbird[@]}" --save-every 2 --eval-every 4 --eval-samples 2 --sample-tokens 4
[[ $code -eq 0 ]] || fail "one: exit code $code"
[[ $(losses one) != "$(losses dense)" ]] || fail "the pattern changed nothing"
run_training 1 again "${bigbird[@]}" --recompute full
same again one
run_training 1 seed --attention-pattern "$work/random.json"
[[ $code -eq 0 && $(bits seed) != "$(bits one)" ]] || fail "another random block changed nothing"
run_training 2 tensor "${bigbird[@]}" --tensor 2
follows tensor one
run_training 2 context "${bigbird[@]}" --context 2
follows context one
run_training 2 sharded "${bigbird[@]}" --zero 3
follows sharded one
run_training 1 emulated "${bigbird[@]}" --device emu:90 --dtype fp32 --steps 1
follows emulated one
run_training 1 resumed "${bigbird[@]}" --resume "$work/one/checkpoints/step_00000002"
[[ $code -eq 0 && $(bits resumed) == "$(bits one | tail -n 2)" ]] || fail "resumed: other bits"
run_training 1 other --attention-pattern local --resume "$work/one/checkpoints/step_00000002"
[[ $code -eq 64 ]] && grep -q attention "$work/stderr" || fail "resumed with another pattern: $code"

run_training 1 graph "${bigbird[@]}" --device emu --cuda-graph
[[ $code -eq 64 ]] && grep -q cuda-graph "$work/stderr" || fail "a graph with a pattern: $code"

echo '{"block": 128, "rows": [[0], [0, 1], [1, 2], [0, 3]]}' >"$work/rows.json"
run_training 1 listed --attention-pattern "$work/rows.json" --document-mask --document-token 10
[[ $code -eq 0 ]] || fail "listed: exit code $code"
"$BIN_DIR/shale" plan "${common[@]}" "${bigbird[@]}" >"$work/stdout" 2>"$work/stderr" ||
  fail "shale plan with a pattern"
finish
