#!/usr/bin/env bash
# Tests --cuda-graph. Losses are bit-identical with and without it, including runs with evaluation,
# saving, resuming and loss scaling. Operations that cannot be captured are errors.
source "$(dirname "${BASH_SOURCE[0]}")/../support/cli.sh"

text="$work/text.txt"
for i in $(seq 2000); do echo "line $i of a text that is long enough"; done >"$text"

# run NAME FLAGS...: sets `code` to the exit code. LAUNCH is the launcher command.
run() {
  local name=$1
  shift
  timeout 120 ${LAUNCH:-} "$BIN_DIR/train_lm" --device emu --data "$text" --layers 1 --width 32 \
    --heads 2 --seq-len 16 --micro-batch 1 --global-batch 3 --steps 6 --threads 1 \
    --eval-every 2 --eval-samples 2 --out "$work/$name" "$@" >"$work/$name.output" 2>&1
  code=$?
}

fail() {
  failures=$((failures + 1))
  echo "FAILED: $1"
  tail -n 5 "$work/$2.output"
}

# losses NAME: prints losses of steps and validations.
losses() { grep -oE '"(loss_bits|val_loss)": [^,}]*' "$work/$1/metrics.jsonl"; }

# same NAME FLAGS...: runs without and with graphs, and compares the losses. There are 6 training
# losses and 3 validation losses.
same() {
  local name=$1
  shift
  run "$name" "$@"
  [[ $code -eq 0 && $(losses "$name" | wc -l) -eq 9 ]] || fail "$*: ended with $code" "$name"
  run "$name.graph" "$@" --cuda-graph
  [[ $code -eq 0 ]] || fail "$* --cuda-graph: exit code $code" "$name.graph"
  [[ $(losses "$name.graph") == "$(losses "$name")" ]] || fail "$*: other losses" "$name.graph"
}

same plain --dropout 0.1 --save-every 4
same zero3 --zero 3 --dtype bf16 --recompute full --device emu:90
# With fp8, the first micro-batch of a step quantizes the weights, and the other micro-batches use
# the result.
same fp8 --dtype fp8 --fp8-kept-blocks 0 --device emu:90
# With this loss scale, gradients of the first steps overflow, and the steps are skipped.
same scaled --dtype fp16 --loss-scale 16777216
grep -q 'the step was skipped' "$work/scaled.graph.output" || fail "no step was skipped" scaled.graph

# Resumes from a checkpoint of a run with graphs: once without graphs, once with graphs.
for flags in "" "--cuda-graph"; do
  name="resumed$flags"
  run "$name" --dropout 0.1 --resume "$work/plain.graph/checkpoints/step_00000004" $flags
  [[ $code -eq 0 && $(losses "$name") == "$(losses plain | tail -n 3)" ]] ||
    fail "resumed with '$flags': exit code $code, or other losses" "$name"
done

# refused WORD FLAGS...: the run fails with an error that contains WORD.
refused() {
  local word=$1
  shift
  run refused --cuda-graph "$@"
  [[ $code -eq 64 ]] || fail "$*: exit code $code, expected 64" refused
  [[ $(grep -c 'error:' "$work/refused.output") -eq 1 ]] || fail "$*: not one error line" refused
  grep 'error:' "$work/refused.output" | grep -- "--cuda-graph" | grep -qF -- "$word" ||
    fail "$*: the error does not name --cuda-graph and '$word'" refused
}
refused "--device cpu" --device cpu
refused "--device auto" --device auto
refused "--offload " --offload optimizer
refused "--offload-activations" --offload-activations
refused "--reproducible" --reproducible --global-batch 2
LAUNCH="mpirun --oversubscribe --bind-to none -np 2" refused "2" --global-batch 2

finish
