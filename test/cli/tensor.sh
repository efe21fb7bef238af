#!/usr/bin/env bash
# Layers that ranks share: losses of one rank, checkpoints and published weights that know nothing
# of it, and errors that say what fits.
source "$(dirname "${BASH_SOURCE[0]}")/../support/cli.sh"
shown=("$work/stdout" "$work/stderr")

for i in $(seq 2000); do echo "line $i of a text that is long enough"; done >"$work/text.txt"
common=(--data "$work/text.txt" --layers 2 --width 32 --heads 4 --seq-len 32 --global-batch 8
  --micro-batch 2 --device cpu --threads 1 --steps 8 --keep 0)

# rows OUT FROM: steps and bits of the losses of steps after FROM.
rows() { sed -nE 's/^\{"step": ([0-9]+), .*"loss_bits": ("[0-9a-f]*").*/\1 \2/p' \
  "$work/$1/metrics.jsonl" | awk -v from="$2" '$1 > from'; }
losses() { sed -nE 's/^\{"step": [0-9]+, "loss": ([0-9.]+).*/\1/p' "$work/$1/metrics.jsonl"; }
# same NAME WANT FROM: it ended well, with the losses of WANT.
same() {
  [[ $code -eq 0 ]] || { fail "$1: exit code $code"; return; }
  [[ -n $(rows "$1" "$3") && $(rows "$1" "$3") == $(rows "$2" "$3") ]] ||
    fail "$1: other losses than $2"
}

# ---- Two ranks follow one, to rounding ----
run_training 1 one --dropout 0.1 --no-save
run_training 2 two --dropout 0.1 --no-save --tensor 2
[[ $code -eq 0 ]] || fail "--tensor 2: exit code $code"
paste <(losses one) <(losses two) | awk '{ d = $1 - $2; if (d < 0) d = -d; if (d > 1e-4) bad = 1 }
  END { exit NR != 8 || bad }' || fail "--tensor 2 does not follow one rank"
norms() { grep -o '"grad_norm": [0-9.]*' "$work/$1/metrics.jsonl"; }
[[ $(norms one) != $(norms two) ]] ||
  fail "--tensor 2 adds in the order of one rank, want leaves for that"

# A sequence that the ranks do not divide is padded; validations too.
odd=(--seq-len 31 --dropout 0.1 --no-save --eval-every 4 --eval-samples 5)
run_training 1 odd "${odd[@]}"
run_training 2 odd2 "${odd[@]}" --tensor 2
[[ $code -eq 0 ]] || fail "--tensor 2 --seq-len 31: exit code $code"
values() { grep -oE '"(val_)?loss": [0-9.]+' "$work/$1/metrics.jsonl" | awk '{ print $2 }'; }
paste <(values odd) <(values odd2) | awk '{ d = $1 - $2; if (d < 0) d = -d; if (d > 1e-4) bad = 1 }
  END { exit NR != 10 || bad }' || fail "--tensor 2 --seq-len 31 does not follow one rank"

# ---- Equal leaves, equal bits; checkpoints of any layout go on on any other ----
run_training 1 leaves --tensor-leaves 4 --save-every 4 --export "$work/hf_one" --dropout 0.1
run_training 4 leaves4 --tensor 4 --tensor-leaves 4 --save-every 4 --export "$work/hf_four" --dropout 0.1
same leaves4 leaves 0
for file in "$work"/hf_one/*; do
  cmp -s "$file" "$work/hf_four/$(basename "$file")" ||
    fail "$(basename "$file") is not that of one rank"
done
run_training 2 resumed --tensor 2 --tensor-leaves 4 --dropout 0.1 \
  --resume "$work/leaves4/checkpoints/step_00000004"
same resumed leaves 4
run_training 1 back --tensor-leaves 4 --dropout 0.1 --resume "$work/leaves4/checkpoints/step_00000004"
same back leaves 4
# Over data ranks too, with everything sharded.
run_training 1 tree --tensor-leaves 4 --reproducible --no-save --export "$work/hf_tree"
run_training 4 tree22 --tensor 2 --tensor-leaves 4 --zero 3 --reproducible --save-every 4 --check-replicas 2
same tree22 tree 0
run_training 2 tree12 --tensor-leaves 4 --zero 1 --reproducible \
  --resume "$work/tree22/checkpoints/step_00000004"
same tree12 tree 4
# In stages of a pipeline, which also goes on from there.
run_training 4 grid --tensor 2 --tensor-leaves 4 --pipeline 2 --zero 1 --reproducible --report-every 4 \
  --resume "$work/tree22/checkpoints/step_00000004" --export "$work/hf_grid"
same grid tree 4
cmp -s "$work/hf_tree/model.safetensors" "$work/hf_grid/model.safetensors" ||
  fail "stages of shared layers exported another model"
grep -q '"comm_exposed_share_tensor_' "$work/grid/metrics.jsonl" || fail "grid: no word of the axis"

# ---- Llama, with published weights in and out ----
llama=(--model llama-nano --layers 2)
run_training 1 llama "${llama[@]}" --no-save --export "$work/hf_llama" --steps 2 --width 64
run_training 2 llama2 --no-save --tensor 2 --init "$work/hf_llama" --export "$work/hf_again" --steps 0 \
  --width 64 --layers 2 --heads 4
[[ $code -eq 0 ]] || fail "llama: exit code $code"
cmp -s "$work/hf_llama/model.safetensors" "$work/hf_again/model.safetensors" ||
  fail "weights changed on their way through two ranks"

# ---- Mixtures of experts, whose norms are over all heads, with Muon, whose matrices are whole ----
mixture=(--model moe-nano --optimizer muon --tensor-leaves 4 --reproducible)
run_training 1 mixture "${mixture[@]}" --save-every 4 --export "$work/hf_mixture"
[[ $code -eq 0 ]] || fail "mixture: exit code $code"
run_training 4 mixture4 "${mixture[@]}" --tensor 2 --zero 2 --save-every 4 --check-replicas 2
same mixture4 mixture 0
run_training 4 mixture2 "${mixture[@]}" --tensor 2 --pipeline 2 \
  --resume "$work/mixture4/checkpoints/step_00000004" --export "$work/hf_mixture2"
same mixture2 mixture 4
cmp -s "$work/hf_mixture/model.safetensors" "$work/hf_mixture2/model.safetensors" ||
  fail "a mixture that was cut is exported as another"

# ---- LAMB, whose norms are of whole parameters ----
lamb=(--optimizer lamb --lr 0.01 --tensor-leaves 4 --reproducible)
run_training 1 lamb "${lamb[@]}" --save-every 4
[[ $code -eq 0 ]] || fail "lamb: exit code $code"
run_training 4 lamb4 "${lamb[@]}" --tensor 2 --zero 2 --save-every 4
same lamb4 lamb 0
run_training 4 lamb2 "${lamb[@]}" --tensor 2 --pipeline 2 --resume "$work/lamb4/checkpoints/step_00000004"
same lamb2 lamb 4

# ---- Adafactor, whose means are of whole rows and columns ----
means=(--optimizer adafactor --lr 0.01 --tensor-leaves 4 --reproducible)
run_training 1 means "${means[@]}" --save-every 4
[[ $code -eq 0 ]] || fail "adafactor: exit code $code"
run_training 4 means4 "${means[@]}" --tensor 2 --save-every 4
same means4 means 0
run_training 4 means2 "${means[@]}" --tensor 2 --pipeline 2 --resume "$work/means4/checkpoints/step_00000004"
same means2 means 4
# Shards add in another order: steps of 1% of the weights follow to rounding of losses near 5, which
# other seeds or means of halves would miss by a tenth.
run_training 1 wide --optimizer adafactor --lr 0.01 --no-save
for zero in 1 2 3; do
  run_training 4 "zero$zero" --optimizer adafactor --lr 0.01 --tensor 2 --zero "$zero" --save-every 4
  [[ $code -eq 0 ]] || fail "adafactor, --zero $zero: exit code $code"
  paste <(losses wide) <(losses "zero$zero") | awk '{ d = $1 - $2; if (d < 0) d = -d
    if (d > 1e-3) bad = 1 } END { exit NR != 8 || bad }' ||
    fail "adafactor with --tensor 2 --zero $zero does not follow one rank"
done
run_training 1 alone --optimizer adafactor --lr 0.01 --resume "$work/zero3/checkpoints/step_00000004"
[[ $code -eq 0 ]] || fail "adafactor, one rank after four: exit code $code"

# ---- Moments of 8 bits, of which 64 neighbours share a scale, follow what is cut ----
codes=(--optimizer adamw-8bit --width 256 --layers 1 --tensor-leaves 4 --reproducible)
run_training 1 codes "${codes[@]}" --save-every 4
[[ $code -eq 0 ]] || fail "adamw-8bit: exit code $code"
for zero in 0 1 2 3; do
  run_training 4 "codes$zero" "${codes[@]}" --tensor 2 --zero "$zero" --save-every 4
  same "codes$zero" codes 0
done
# Scales and codes of any layout go on on any other.
run_training 4 codes4 "${codes[@]}" --tensor 4 --resume "$work/codes3/checkpoints/step_00000004"
same codes4 codes 4
run_training 1 codes_back "${codes[@]}" --resume "$work/codes2/checkpoints/step_00000004"
same codes_back codes 4
run_training 4 codes_grid "${codes[@]}" --tensor 2 --zero 1 \
  --resume "$work/codes/checkpoints/step_00000004"
same codes_grid codes 4
# As does a run of layers that nobody cut, to rounding.
run_training 1 codes_one --optimizer adamw-8bit --width 256 --layers 1 --save-every 4
run_training 2 codes_two --optimizer adamw-8bit --width 256 --layers 1 --tensor 2 --no-save \
  --resume "$work/codes_one/checkpoints/step_00000004"
[[ $code -eq 0 ]] || fail "adamw-8bit, two ranks after one: exit code $code"
paste <(losses codes_one | tail -n 4) <(losses codes_two | tail -n 4) | awk '{ d = $1 - $2
  if (d < 0) d = -d; if (d > 1e-3) bad = 1 } END { exit NR != 4 || bad }' ||
  fail "adamw-8bit with --tensor 2 does not go on where one rank was"

# ---- Adapters: A or B is cut where the weight is, every leaf has the other ----
lora=(--init "$work/hf_one" --lora-rank 4 --lr 0.01)
run_training 1 lora_one "${lora[@]}" --no-save
run_training 2 lora_two "${lora[@]}" --no-save --tensor 2
[[ $code -eq 0 ]] || fail "adapters with --tensor 2: exit code $code"
paste <(losses lora_one) <(losses lora_two) | awk '{ d = $1 - $2; if (d < 0) d = -d
  if (d > 1e-4) bad = 1 } END { exit NR != 8 || bad }' ||
  fail "adapters on two tensor ranks do not follow one rank"
lora+=(--tensor-leaves 4 --reproducible)
run_training 1 lora "${lora[@]}" --save-every 4 --export "$work/peft_one"
for zero in 0 1 2 3; do
  run_training 4 "lora$zero" "${lora[@]}" --tensor 2 --zero "$zero" --save-every 4 \
    --export "$work/peft_$zero"
  same "lora$zero" lora 0
  cmp -s "$work/peft_one/adapter_model.safetensors" "$work/peft_$zero/adapter_model.safetensors" ||
    fail "adapters of --tensor 2 --zero $zero are not those of one rank"
done
run_training 4 lora4 "${lora[@]}" --tensor 4 --resume "$work/lora3/checkpoints/step_00000004"
same lora4 lora 4
run_training 4 lora_grid "${lora[@]}" --tensor 2 --pipeline 2 \
  --resume "$work/lora2/checkpoints/step_00000004" --export "$work/merged_grid" --export-merged
same lora_grid lora 4
run_training 1 lora_back "${lora[@]}" --resume "$work/lora0/checkpoints/step_00000004" \
  --export "$work/merged_one" --export-merged
same lora_back lora 4
cmp -s "$work/merged_one/model.safetensors" "$work/merged_grid/model.safetensors" ||
  fail "merged weights of a grid are not those of one rank"
# In on another layout, and out again as they were.
run_training 2 lora_in --init "$work/hf_one" --lora-init "$work/peft_one" --tensor 2 --steps 0 \
  --no-save --export "$work/peft_again"
cmp -s "$work/peft_one/adapter_model.safetensors" "$work/peft_again/adapter_model.safetensors" ||
  fail "adapters changed on their way through two ranks"
# Of Llama, whose frozen weights have another dtype.
lora=(--init "$work/hf_llama" --lora-rank 4 --lr 0.01 --width 64 --frozen-dtype bf16
  --tensor-leaves 2 --reproducible --no-save --recompute full)
run_training 1 lora_llama "${lora[@]}"
[[ $code -eq 0 ]] || fail "adapters of a Llama: exit code $code"
run_training 2 lora_llama2 "${lora[@]}" --tensor 2 --zero 0
same lora_llama2 lora_llama 0

# ---- What does not fit says what does ----
# refuses WORDS RANKS FLAGS...
refuses() {
  local words=$1 ranks=$2
  shift 2
  run_training "$ranks" refused --no-save "$@"
  [[ $code -eq 64 ]] && grep -qF -- "$words" "$work/stdout" "$work/stderr" ||
    fail "$*: exit code $code, want 64 and \"$words\""
}
refuses "want a divisor of" 2 --tensor 2 --heads 1
refuses "want a divisor of the 2 ranks" 2 --tensor 3
refuses "--pipeline 2, --tensor 2: a model on 4 ranks" 2 --tensor 2 --pipeline 2
refuses "would weigh the padding; want a multiple of 2" 2 --tensor 2 --seq-len 31 --model moe-nano
refuses "want a multiple of 256" 2 --tensor 2 --seq-len 31 --attention-pattern local
refuses "want a power of two that --tensor, 2, divides" 2 --tensor 2 --tensor-leaves 6
refuses "want rows of a multiple of 64" 2 --tensor 2 --optimizer adamw-8bit
refuses "want leaves that divide 3" 2 --tensor 2 --optimizer adamw-8bit --width 192
refuses "want bf16" 2 --tensor 2 --init "$work/hf_one" --lora-rank 2 --frozen-dtype nf4
refuses "want --lora-dropout 0" 2 --tensor 2 --init "$work/hf_one" --lora-rank 2 --lora-dropout 0.1
refuses "wants --tensor-leaves" 2 --tensor 2 --reproducible
refuses "--sample-tokens" 2 --tensor 2 --sample-tokens 5

finish
