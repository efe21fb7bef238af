#!/usr/bin/env bash
# Tests context parallelism. Losses match those of one rank up to rounding. Validations, checkpoints
# and exported weights do not depend on context parallelism. Errors name values that would work.
source "$(dirname "${BASH_SOURCE[0]}")/../support/cli.sh"
shown=("$work/stdout" "$work/stderr")

for i in $(seq 2000); do echo "line $i of a text that is long enough"; done >"$work/text.txt"
# Sequences have 61 tokens, so that chunks need padding.
common=(--data "$work/text.txt" --layers 2 --width 32 --heads 4 --seq-len 61 --global-batch 4
  --micro-batch 1 --device cpu --threads 1 --steps 6 --keep 0 --eval-every 3 --eval-samples 5)

# losses NAME: prints losses of steps and validations.
losses() {
  sed -nE 's/^\{"step": [0-9]+, "(val_)?loss": ([0-9.]+).*/\2/p' "$work/$1/metrics.jsonl"
}
# follows NAME REFERENCE LINES: run NAME succeeded, and its last LINES losses match REFERENCE up to
# rounding.
follows() {
  [[ $code -eq 0 ]] || { fail "$1: exit code $code"; return; }
  paste <(losses "$1" | tail -n "$3") <(losses "$2" | tail -n "$3") |
    awk -v want="$3" '{ d = $1 - $2; if (d < 0) d = -d; if (d > 1e-4) bad = 1 }
      END { exit NR != want || bad }' || fail "$1 does not follow $2"
}

trains one 1 --dropout 0.1 --save-every 3
run_training 2 two --dropout 0.1 --context 2 --save-every 3 --check-replicas 2 --report-every 3
follows two one 8
grep -q '"comm_exposed_share_context_' "$work/two/metrics.jsonl" || fail "two: no word of the axis"
run_training 4 four --dropout 0.1 --context 2 --zero 3
follows four one 8
for kind in ring ulysses ulysses+ring; do
  run_training 2 "$kind" --dropout 0.1 --context 2 --context-kind "$kind" --zero 3
  follows "$kind" one 8
done
run_training 1 back --dropout 0.1 --resume "$work/two/checkpoints/step_00000003"
follows back one 4
run_training 2 on --dropout 0.1 --context 2 --zero 1 --resume "$work/one/checkpoints/step_00000003"
follows on one 4

# ---- Any number of processes: identical bits ----
bits() { sed -nE 's/^\{"step": ([0-9]+), .*"loss_bits": ("[0-9a-f]*").*/\1 \2/p' \
  "$work/$1/metrics.jsonl" | awk -v from="$2" '$1 > from'; }
# same NAME REFERENCE FROM: the losses after step FROM are bit-identical.
same() {
  [[ $code -eq 0 ]] || { fail "$1: exit code $code"; return; }
  [[ -n $(bits "$1" "$3") && $(bits "$1" "$3") == $(bits "$2" "$3") ]] ||
    fail "$1: other losses than $2"
}
cut=(--context 4 --reproducible --dropout 0.1)
trains cut 1 "${cut[@]}" --save-every 3
run_training 2 cut2 "${cut[@]}" --zero 1 --no-save
same cut2 cut 0
run_training 4 cut4 "${cut[@]}" --no-save
same cut4 cut 0
run_training 4 cut22 "${cut[@]}" --ranks-per-process 2 --zero 3 --resume "$work/cut/checkpoints/step_00000003"
same cut22 cut 3
run_training 4 stages2 "${cut[@]}" --pipeline 2 --no-save
same stages2 cut 0
for kind in ring ulysses ulysses+ring; do
  trains "$kind-cut" 1 "${cut[@]}" --context-kind "$kind" --no-save
  run_training 2 "$kind-cut2" "${cut[@]}" --context-kind "$kind" --no-save
  same "$kind-cut2" "$kind-cut" 0
done
same ulysses+ring-cut ring-cut 0
# Four ranks as two groups of two: each group exchanges heads (Ulysses), and a ring connects the
# groups.
run_training 4 groups "${cut[@]}" --context-kind ulysses+ring --heads 2 --no-save
trains group 1 "${cut[@]}" --context-kind ring --heads 2 --no-save
same groups group 0
both=("${cut[@]}" --tensor 2 --seq-len 64 --no-save)
trains both 1 "${both[@]}"
for processes in 2 8; do
  run_training $processes "both$processes" "${both[@]}"
  same "both$processes" both 0
done

llama=(--model llama-nano --layers 2)
trains llama 1 "${llama[@]}" --no-save --export "$work/stored_hf"
trains grid 4 "${llama[@]}" --no-save --context 2 --tensor 2 --seq-len 64
run_training 2 stages "${llama[@]}" --no-save --context 2 --pipeline 2
follows stages llama 8

# ---- LoRA adapters, for which a layer uses its rows twice ----
adapters=(--model llama-nano --init "$work/stored_hf" --lora-rank 4 --dtype bf16 --lr 1e-2
  --context 4 --reproducible --no-save)
trains adapters 1 "${adapters[@]}"
run_training 4 adapters4 "${adapters[@]}"
same adapters4 adapters 0

# ---- MoE: router and load-balancing losses see whole sequences ----
mixture=(--model moe-nano --layers 2 --seq-len 64 --balance-loss 0.3 --router-z-loss 0.1)
trains mixture 1 "${mixture[@]}" --no-save
run_training 2 mixture2 "${mixture[@]}" --context 2 --zero 3 --save-every 3
follows mixture2 mixture 8
run_training 1 mixture22 "${mixture[@]}" --context 2 --tensor 2 \
  --resume "$work/mixture2/checkpoints/step_00000003"
follows mixture22 mixture 4
quarters=("${mixture[@]}" --context 4 --reproducible --no-save)
trains quarters 1 "${quarters[@]}"
run_training 2 quarters2 "${quarters[@]}"
same quarters2 quarters 0
tokens() { grep -o '"expert_tokens_m[a-z]*": [0-9.]*' "$work/$1/metrics.jsonl"; }
[[ -n $(tokens quarters) && $(tokens quarters2) == $(tokens quarters) ]] ||
  fail "tokens are counted otherwise"

# refuses WORDS PROCESSES FLAGS...: the run fails with an error that contains WORDS.
refuses() {
  run_training "$2" refused --no-save "${@:3}"
  [[ $code -eq 64 ]] && grep -qF -- "$1" "$work/stdout" "$work/stderr" ||
    fail "${*:3}: exit code $code, expected 64 and \"$1\""
}
refuses "--context 3: one copy of the model needs 3 ranks, found 2" 2 --context 3
refuses "--ranks-per-process is 4 on 1 process with --context 2" 1 --context 2 --ranks-per-process 4
refuses "MoE routers would count the padding; expected a multiple of 4" 1 --context 2 --model moe-nano
refuses "--sample-tokens 5 is incompatible with --context 2" 1 --context 2 --sample-tokens 5
refuses "--context-leaves was removed; use --context" 1 --context-leaves 4
refuses "has no effect without --context" 1 --context-kind ring
refuses "ulysses splits 1 key heads over 2 ranks" 1 --context 2 --context-kind ulysses --heads 1
refuses "--context-group was removed" 1 --context 2 --context-kind ulysses+ring --context-group 2
refuses "use --context-kind gather or ulysses" 1 --context 2 --context-kind ring --seq-len 512 \
  --attention-pattern local
refuses "expected at least 4 tokens, two for each rank" 1 --context 2 --seq-len 3
finish
