#!/usr/bin/env bash
# Sequences that ranks share: the losses of whole ones, to rounding; validations, checkpoints and
# published weights that know nothing of it; errors that say what fits.
source "$(dirname "${BASH_SOURCE[0]}")/../support/cli.sh"
shown=("$work/stdout" "$work/stderr")

for i in $(seq 2000); do echo "line $i of a text that is long enough"; done >"$work/text.txt"
# 61 tokens: chunks are padded.
common=(--data "$work/text.txt" --layers 2 --width 32 --heads 4 --seq-len 61 --global-batch 4
  --micro-batch 1 --device cpu --threads 1 --steps 6 --keep 0 --eval-every 3 --eval-samples 5)

# Losses after steps, and of validations.
losses() {
  sed -nE 's/^\{"step": [0-9]+, "(val_)?loss": ([0-9.]+).*/\2/p' "$work/$1/metrics.jsonl"
}
# follows NAME WANT LINES: it ended well, with the last so many losses of WANT, to rounding.
follows() {
  [[ $code -eq 0 ]] || { fail "$1: exit code $code"; return; }
  paste <(losses "$1" | tail -n "$3") <(losses "$2" | tail -n "$3") |
    awk -v want="$3" '{ d = $1 - $2; if (d < 0) d = -d; if (d > 1e-4) bad = 1 }
      END { exit NR != want || bad }' || fail "$1 does not follow $2"
}

run_training 1 one --dropout 0.1 --save-every 3
[[ $code -eq 0 ]] || fail "one: exit code $code"
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

# ---- Equal leaves, equal bits ----
bits() { sed -nE 's/^\{"step": ([0-9]+), .*"loss_bits": ("[0-9a-f]*").*/\1 \2/p' \
  "$work/$1/metrics.jsonl" | awk -v from="$2" '$1 > from'; }
# same NAME WANT FROM
same() {
  [[ $code -eq 0 ]] || { fail "$1: exit code $code"; return; }
  [[ -n $(bits "$1" "$3") && $(bits "$1" "$3") == $(bits "$2" "$3") ]] ||
    fail "$1: other losses than $2"
}
leaves=(--context-leaves 4 --reproducible --dropout 0.1)
run_training 1 leaves "${leaves[@]}" --save-every 3
run_training 2 leaves2 "${leaves[@]}" --context 2 --zero 1
same leaves2 leaves 0
run_training 4 leaves22 "${leaves[@]}" --context 2 --zero 3 --resume "$work/leaves/checkpoints/step_00000003"
same leaves22 leaves 3
run_training 4 stages2 "${leaves[@]}" --context 2 --pipeline 2 --no-save
same stages2 leaves 0
for kind in ring ulysses ulysses+ring; do
  run_training 1 "$kind-leaves" "${leaves[@]}" --context-kind "$kind" --no-save
  run_training 2 "$kind-leaves2" "${leaves[@]}" --context-kind "$kind" --context 2 --no-save
  same "$kind-leaves2" "$kind-leaves" 0
done
same ulysses+ring-leaves ring-leaves 0
# Heads for two ranks that trade them, of four: a ring of two groups.
run_training 4 groups "${leaves[@]}" --context-kind ulysses+ring --context 4 --heads 2 --no-save
run_training 1 group "${leaves[@]}" --context-kind ring --heads 2 --no-save
same groups group 0
run_training 1 both "${leaves[@]}" --tensor-leaves 2 --seq-len 64 --no-save
run_training 4 both22 "${leaves[@]}" --tensor-leaves 2 --seq-len 64 --tensor 2 --context 2 --no-save
same both22 both 0

llama=(--model llama-nano --layers 2)
run_training 1 llama "${llama[@]}" --no-save
run_training 4 grid "${llama[@]}" --no-save --context 2 --tensor 2 --seq-len 64
[[ $code -eq 0 ]] || fail "context and tensor: exit code $code"
run_training 4 stages "${llama[@]}" --no-save --context 2 --pipeline 2
follows stages llama 8

# ---- Adapters, for which a layer uses its rows twice ----
run_training 1 stored "${llama[@]}" --no-save --export "$work/stored_hf"
adapters=(--model llama-nano --init "$work/stored_hf" --lora-rank 4 --dtype bf16 --lr 1e-2
  --context-leaves 4 --reproducible --no-save)
run_training 1 adapters "${adapters[@]}"
run_training 4 adapters4 "${adapters[@]}" --context 4
same adapters4 adapters 0

# ---- Mixtures of experts, whose routers and balance know whole sequences ----
mixture=(--model moe-nano --layers 2 --seq-len 64 --balance-loss 0.3 --router-z-loss 0.1)
run_training 1 mixture "${mixture[@]}" --save-every 3
run_training 2 mixture2 "${mixture[@]}" --context 2 --zero 3 --save-every 3
follows mixture2 mixture 8
run_training 4 mixture22 "${mixture[@]}" --context 2 --tensor 2 \
  --resume "$work/mixture2/checkpoints/step_00000003"
follows mixture22 mixture 4
halves=("${mixture[@]}" --context-leaves 4 --reproducible --no-save)
run_training 1 halves "${halves[@]}"
run_training 2 halves2 "${halves[@]}" --context 2
same halves2 halves 0
tokens() { grep -o '"expert_tokens_m[a-z]*": [0-9.]*' "$work/$1/metrics.jsonl"; }
[[ -n $(tokens halves) && $(tokens halves2) == $(tokens halves) ]] || fail "tokens are counted otherwise"

# refuses WORDS RANKS FLAGS...
refuses() {
  local words=$1 ranks=$2
  shift 2
  run_training "$ranks" refused --no-save "$@"
  [[ $code -eq 64 ]] && grep -qF -- "$words" "$work/stdout" "$work/stderr" ||
    fail "$*: exit code $code, want 64 and \"$words\""
}
refuses "--context 3: a model on 3 ranks, want a divisor of the 2 ranks" 2 --context 3
refuses "would weigh the padding; want a multiple of 4" 2 --context 2 --model moe-nano
refuses "that --context cuts generates nothing" 2 --context 2 --sample-tokens 5
refuses "wants --context-leaves" 2 --context 2 --reproducible
refuses "want a power of two that --context, 2, divides" 2 --context 2 --context-leaves 6
refuses "has no effect without --context or --context-leaves" 2 --context-kind ring
refuses "ulysses deals out 1 heads of keys to 2 ranks" 2 --context 2 --context-kind ulysses --heads 1
refuses "that trade 2 heads of keys, want a divisor of 2" 4 --context 4 --context-kind ulysses+ring \
  --context-group 4 --heads 2
refuses "want a divisor of --context, 2" 2 --context 2 --context-kind ulysses+ring --context-group 3
refuses "has no effect without --context-kind ulysses+ring" 2 --context 2 --context-group 2
refuses "want gather or ulysses" 2 --context 2 --context-kind ring --seq-len 512 \
  --attention-pattern local
refuses "want at least 4, two chunks for each" 2 --context 2 --seq-len 3
finish
