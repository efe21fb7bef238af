#!/usr/bin/env bash
# Tests pipeline parallelism of train_lm. For every schedule, losses equal those of one rank, and
# checkpoints, weights and validations equal those of any other layout. Incompatible options are
# refused with an alternative.
source "$(dirname "${BASH_SOURCE[0]}")/../support/cli.sh"
shown=("$work/stdout" "$work/stderr")

for i in $(seq 2000); do echo "line $i of a text that is long enough"; done >"$work/text.txt"

common=(--data "$work/text.txt" --layers 2 --width 32 --heads 2 --seq-len 32 --micro-batch 2
  --threads 1 --steps 8)

# bits OUT [FROM]: prints the bits of losses after a step, and of validations.
bits() {
  sed -nE 's/^\{"step": ([0-9]+), .*"loss_bits": ("[0-9a-f]*").*/\1 \2/p;
    s/^\{"step": ([0-9]+), ("val_loss": [^,]*).*/\1 \2/p' "$work/$1/metrics.jsonl" |
    awk -v from="${2:-0}" '$1 > from'
}

same() {  # arguments: NAME FROM_OUT [FROM]
  [[ $code -eq 0 ]] || { fail "$1: exit code $code"; return; }
  [[ -n $(bits "$1" "${3:-0}") && $(bits "$1" "${3:-0}") == $(bits "$2" "${3:-0}") ]] ||
    fail "$1: other losses than $2"
}

# ---- GPT-2 with tied embeddings ----
tied=(--reproducible --global-batch 8 --eval-every 4 --eval-samples 7 --dropout 0.1)
run_training 1 one "${tied[@]}" --save-every 4 --keep 0 --export "$work/export1"
[[ $code -eq 0 ]] || fail "one: exit code $code"
run_training 2 two "${tied[@]}" --pipeline 2 --save-every 4 --keep 0 --export "$work/export2"
same two one
grep -q 'pipeline of 2 stages on 2 ranks: embedding' "$work/stdout" || fail "two: no word of stages"
grep -q '"bubble_ms": [0-9]' "$work/two/metrics.jsonl" || fail "two: no bubble_ms"
cmp -s "$work/export1/model.safetensors" "$work/export2/model.safetensors" ||
  fail "two: another model was exported"
run_training 2 zbv "${tied[@]}" --pipeline 2 --pipeline-schedule zbv --zero 1
same zbv one

# ---- Checkpoints, to and from other layouts ----
run_training 1 two_to_one "${tied[@]}" --resume "$work/two/checkpoints/step_00000004"
same two_to_one one 4
run_training 4 one_to_four "${tied[@]}" --pipeline 2 --zero 1 --resume "$work/one/checkpoints/step_00000004"
same one_to_four one 4
run_training 2 init --pipeline 2 --init "$work/export2" --lr 1e-3 --micro-batch 1 --global-batch 4 --pipeline-schedule zb-h1
[[ $code -eq 0 ]] || fail "init: exit code $code"

# ---- Llama, without --reproducible ----
llama=(--model llama-nano --kv-heads 1 --hidden 48 --global-batch 8)
run_training 1 llama1 "${llama[@]}"
run_training 2 llama2 "${llama[@]}" --pipeline 2 --pipeline-chunks 2
same llama2 llama1

# ---- Incompatible options ----
refused() {  # arguments: TEXT FLAGS...
  local text=$1
  shift
  run_training 2 refused --pipeline 2 "$@"
  [[ $code -eq 64 ]] || fail "$*: exit code $code, expected 64"
  grep -qF -- "$text" "$work/stderr" || fail "$*: no '$text'"
}
refused 'use --zero 0 or 1' --zero 2
refused 'expected a multiple of the 2 stages' --pipeline-chunks 2 --micro-batch 1 --global-batch 3
refused 'expected at least one for each of 6 stages' --pipeline-chunks 3 --micro-batch 1 --global-batch 2
refused 'use 1f1b or interleaved, or --recompute selective' --pipeline-schedule zb-h1 --recompute full
refused '--pipeline-split was removed; leave it out: pipeline stages get equal costs' --pipeline-split 2,2
refused '--sample-tokens 5 is incompatible with --pipeline 2' --sample-tokens 5
run_training 1 refused --pipeline 2
[[ $code -eq 64 ]] && grep -qF -- '--pipeline 2: one copy of the model needs 2 ranks, found 1' \
  "$work/stderr" || fail "--pipeline 2 on one process: exit code $code, expected 64 and what fits"
finish
