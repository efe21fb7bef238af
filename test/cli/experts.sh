#!/usr/bin/env bash
# Tests expert parallelism. Losses match those of ranks that hold all experts, up to rounding.
# Checkpoints and exported weights do not depend on expert parallelism. Errors name values that
# would work.
source "$(dirname "${BASH_SOURCE[0]}")/../support/cli.sh"
shown=("$work/stdout" "$work/stderr")

for i in $(seq 2000); do echo "line $i of a text that is long enough"; done >"$work/text.txt"
common=(--data "$work/text.txt" --model moe-nano --layers 2 --width 32 --heads 4 --seq-len 32
  --global-batch 4 --micro-batch 1 --device cpu --threads 1 --steps 6 --keep 0)

losses() { sed -nE 's/^\{"step": [0-9]+, "loss": ([0-9.]+).*/\1/p' "$work/$1/metrics.jsonl"; }
# follows NAME REFERENCE LINES: run NAME succeeded, and its last LINES losses match REFERENCE up to
# rounding.
follows() {
  [[ $code -eq 0 ]] || { fail "$1: exit code $code"; return; }
  paste <(losses "$1" | tail -n "$3") <(losses "$2" | tail -n "$3") |
    awk -v want="$3" '{ d = $1 - $2; if (d < 0) d = -d; if (d > 2e-4) bad = 1 }
      END { exit NR != want || bad }' || fail "$1 does not follow $2"
}

run_training 2 all --save-every 3 --export "$work/hf_all"
[[ $code -eq 0 ]] || fail "all: exit code $code"
run_training 2 dealt --expert 2 --save-every 3 --check-replicas 2 --report-every 3
follows dealt all 6
grep -q '"comm_exposed_share_expert_' "$work/dealt/metrics.jsonl" || fail "dealt: no word of the axis"
run_training 4 four --expert 2 --zero 3 --resume "$work/all/checkpoints/step_00000003"
follows four all 3
run_training 2 back --zero 1 --resume "$work/dealt/checkpoints/step_00000003"
follows back all 3
run_training 2 again --expert 2 --steps 0 --init "$work/hf_all" --export "$work/hf_again" --no-save
[[ $code -eq 0 ]] || fail "again: exit code $code"
cmp -s "$work/hf_all/model.safetensors" "$work/hf_again/model.safetensors" ||
  fail "weights changed on their way through two ranks"

# ---- Combined with other axes: from any layout to any other, and back ----
run_training 4 layers --expert 2 --tensor 2 --zero 3 --save-every 3 --check-replicas 2 --recompute full
follows layers all 6
run_training 4 tokens --expert 4 --context 2 --zero 2 --save-every 3 --check-replicas 2 \
  --resume "$work/layers/checkpoints/step_00000003"
follows tokens all 3
run_training 4 stages --expert 2 --pipeline 2 --save-every 3 --offload optimizer \
  --resume "$work/all/checkpoints/step_00000003"
follows stages all 3
run_training 1 one --resume "$work/layers/checkpoints/step_00000003"
follows one all 3
run_training 4 both --expert 4 --tensor 2 --context 2 --offload optimizer --zero 1 --export "$work/hf_both" \
  --save-every 6
follows both all 6
run_training 1 half --resume "$work/both/checkpoints/step_00000006" --steps 6 --export "$work/hf_half"
[[ $code -eq 0 ]] || fail "half: exit code $code"
cmp -s "$work/hf_both/model.safetensors" "$work/hf_half/model.safetensors" ||
  fail "experts of four ranks are not those that one rank reads from their checkpoint"
run_training 4 folder --expert 4 --tensor 2 --steps 0 --init "$work/hf_all" --export "$work/hf_folder" \
  --no-save
[[ $code -eq 0 ]] || fail "folder: exit code $code"
cmp -s "$work/hf_all/model.safetensors" "$work/hf_folder/model.safetensors" ||
  fail "weights changed on their way through ranks that share layers"

# Each token is counted once, even if several ranks have it.
tokens() { grep -o '"expert_tokens_mean": [0-9.]*' "$work/$1/metrics.jsonl" | sort -u; }
for name in layers tokens stages both; do
  [[ -n $(tokens all) && $(tokens "$name") == $(tokens all) ]] ||
    fail "$name: $(tokens "$name"), expected $(tokens all)"
done

# ---- Optimizers of whole matrices ----
for optimizer in muon adafactor lamb; do
  run_training 1 "$optimizer" --optimizer "$optimizer" --save-every 3
  [[ $code -eq 0 ]] || fail "$optimizer: exit code $code"
  run_training 4 "$optimizer-layers" --optimizer "$optimizer" --expert 2 --tensor 2 --zero 2 --save-every 3
  follows "$optimizer-layers" "$optimizer" 6
  run_training 4 "$optimizer-stages" --optimizer "$optimizer" --expert 2 --pipeline 2 --zero 1 \
    --resume "$work/$optimizer-layers/checkpoints/step_00000003"
  follows "$optimizer-stages" "$optimizer" 3
  run_training 1 "$optimizer-one" --optimizer "$optimizer" \
    --resume "$work/$optimizer-layers/checkpoints/step_00000003"
  follows "$optimizer-one" "$optimizer" 3
done
for optimizer in muon adafactor lamb; do
  run_training 4 own --optimizer "$optimizer" --expert 4 --tensor 2 --zero 0 --no-save
  follows own "$optimizer" 6
done

# refuses WORDS RANKS FLAGS...: the run fails with an error that contains WORDS.
refuses() {
  local words=$1 ranks=$2
  shift 2
  run_training "$ranks" refused --no-save "$@"
  [[ $code -eq 64 ]] && grep -qF -- "$words" "$work/stdout" "$work/stderr" ||
    fail "$*: exit code $code, expected 64 and \"$words\""
}
refuses "--expert 3: expected a divisor of the 2 ranks" 2 --expert 3
refuses "no MoE layers" 2 --expert 2 --model llama-nano
refuses "use --expert 1" 2 --expert 2 --reproducible
refuses "use muon, lamb, adafactor, or an optimizer that works" 2 --expert 2 --optimizer adamw-8bit
refuses "--expert 3: expected a divisor of the 4 ranks that share the layers of a stage" 4 --expert 3 --tensor 2
for axis in tensor context; do
  refuses "use as many processes as ranks" 4 --expert 2 --$axis 2 --ranks-per-process 2
done
refuses "use as many processes as ranks" 1 --expert 2 --tensor 2
finish
