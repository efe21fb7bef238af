#!/usr/bin/env bash
# Tests tensor parallelism. Losses match one rank up to rounding, and are bit-identical for any
# number of processes. Checkpoints and exported weights do not depend on tensor parallelism. Errors
# name values that would work.
source "$(dirname "${BASH_SOURCE[0]}")/../support/cli.sh"
shown=("$work/stdout" "$work/stderr")

for i in $(seq 2000); do echo "line $i of a text that is long enough"; done >"$work/text.txt"
common=(--data "$work/text.txt" --layers 2 --width 32 --heads 4 --seq-len 32 --global-batch 8
  --micro-batch 2 --device cpu --threads 1 --steps 8 --keep 0)

# rows OUT FROM: prints step and loss bits of steps after FROM.
rows() { sed -nE 's/^\{"step": ([0-9]+), .*"loss_bits": ("[0-9a-f]*").*/\1 \2/p' \
  "$work/$1/metrics.jsonl" | awk -v from="$2" '$1 > from'; }
# values OUT: prints losses of steps and validations.
values() { grep -oE '"(val_)?loss": [0-9.]+' "$work/$1/metrics.jsonl" | awk '{ print $2 }'; }
# same NAME REFERENCE FROM: run NAME succeeded, with bit-identical losses to REFERENCE.
same() {
  [[ $code -eq 0 ]] || { fail "$1: exit code $code"; return; }
  [[ -n $(rows "$1" "$3") && $(rows "$1" "$3") == $(rows "$2" "$3") ]] ||
    fail "$1: other losses than $2"
}
# follows NAME REFERENCE LINES WITHIN: run NAME succeeded, and its last LINES losses match REFERENCE
# up to rounding.
follows() {
  [[ $code -eq 0 ]] || { fail "$1: exit code $code"; return; }
  paste <(values "$1" | tail -n "$3") <(values "$2" | tail -n "$3") |
    awk -v want="$3" -v within="$4" '{ d = $1 - $2; if (d < 0) d = -d; if (d > within) bad = 1 }
      END { exit NR != want || bad }' || fail "$1 does not follow $2"
}
same_file() { cmp -s "$work/$1" "$work/$2" || fail "$1 and $2 differ"; }

# ---- Two ranks match one, up to rounding ----
trains one 1 --dropout 0.1 --no-save
run_training 1 two --dropout 0.1 --no-save --tensor 2
follows two one 8 1e-4
norms() { grep -o '"grad_norm": [0-9.]*' "$work/$1/metrics.jsonl"; }
[[ $(norms one) != $(norms two) ]] || fail "--tensor 2 adds in the order of one rank, so cuts nothing"

# A sequence length that the ranks do not divide is padded, also in validations.
odd=(--seq-len 31 --dropout 0.1 --no-save --eval-every 4 --eval-samples 5)
trains odd 1 "${odd[@]}"
run_training 1 odd2 "${odd[@]}" --tensor 2
follows odd2 odd 10 1e-4

# ---- Any number of processes: identical bits; a checkpoint of any layout resumes on any other ----
dropped=(--tensor 4 --dropout 0.1)
trains dropped 1 "${dropped[@]}" --save-every 4 --export "$work/hf_one"
run_training 2 dropped2 "${dropped[@]}" --no-save
same dropped2 dropped 0
timeout 120 mpirun -np 1 "$BIN_DIR/train_lm" "${common[@]}" "${dropped[@]}" --no-save \
  --out "$work/launched" >"$work/stdout" 2>"$work/stderr"
code=$?
same launched dropped 0
run_training 4 dropped4 "${dropped[@]}" --save-every 4 --export "$work/hf_four"
same dropped4 dropped 0
for file in "$work"/hf_one/*; do same_file "hf_one/${file##*/}" "hf_four/${file##*/}"; done
run_training 2 resumed "${dropped[@]}" --resume "$work/dropped4/checkpoints/step_00000004"
same resumed dropped 4
run_training 1 back "${dropped[@]}" --resume "$work/dropped4/checkpoints/step_00000004"
same back dropped 4
# Combined with data parallelism, with all states sharded.
tree=(--tensor 4 --reproducible)
trains tree 1 "${tree[@]}" --no-save --export "$work/hf_tree"
run_training 4 tree22 "${tree[@]}" --ranks-per-process 2 --zero 3 --save-every 4 --check-replicas 2
same tree22 tree 0
run_training 2 tree12 "${tree[@]}" --ranks-per-process 4 --zero 1 \
  --resume "$work/tree22/checkpoints/step_00000004"
same tree12 tree 4
# Combined with a pipeline; its checkpoints are resumed too.
run_training 4 grid "${tree[@]}" --pipeline 2 --zero 1 --report-every 4 --save-every 8 \
  --resume "$work/tree22/checkpoints/step_00000004" --export "$work/hf_grid"
same grid tree 4
same_file hf_grid/model.safetensors hf_tree/model.safetensors
grep -q '"comm_exposed_share_tensor_' "$work/grid/metrics.jsonl" || fail "grid: no word of the axis"

# ---- A checkpoint of an earlier version, which had --tensor-leaves ----
# The last line of a manifest is the CRC-32C of the lines before it.
was_written_with() {  # arguments: RUN CHANGE: a change of the manifest's text, as perl has it
  perl -0777 -pi -e "$2"' or die; s/,"crc32c":"\w+"\}\n$//;
    my $sum = 0xffffffff;
    for my $byte (unpack("C*", $_)) {
      $sum ^= $byte;
      $sum = $sum & 1 ? $sum >> 1 ^ 0x82f63b78 : $sum >> 1 for 1 .. 8;
    }
    $_ .= sprintf(",\"crc32c\":\"%08x\"}\n", $sum ^ 0xffffffff)' \
    "$work/$1/checkpoints/step_00000004/manifest.json" || fail "$1: another manifest"
}
run_training 1 former "${tree[@]}" --save-every 4
was_written_with former 's/"tensor":4/"tensor":4,"tensor-leaves":0,"local-most":4/'
run_training 1 unused "${tree[@]}" --resume "$work/former/checkpoints/step_00000004"
same unused tree 4
grep -q 'was removed' "$work/stderr" "$work/stdout" && fail "unused: a word of what was not used"
was_written_with former 's/"tensor":4,"tensor-leaves":0/"tensor":1,"tensor-leaves":4/'
run_training 1 former2 "${tree[@]}" --resume "$work/former/checkpoints/step_00000004"
same former2 tree 4
grep -q -- '--tensor-leaves 4, which was removed.*; use --tensor' "$work/stderr" "$work/stdout" ||
  fail "former2: no word of --tensor-leaves"
was_written_with former 's/"local-most":4/"local-most":8/'
run_training 1 former3 "${tree[@]}" --resume "$work/former/checkpoints/step_00000004"
[[ $code -eq 64 ]] && grep -q -- '--local-most 8, which was removed; ' "$work/stderr" ||
  fail "former3: exit code $code, expected 64 and a word of --local-most"

# ---- Llama, importing and exporting published weights ----
llama=(--model llama-nano --layers 2)
trains llama 1 "${llama[@]}" --no-save --export "$work/hf_llama" --steps 2 --width 64
trains llama2 1 --no-save --tensor 2 --init "$work/hf_llama" --export "$work/hf_again" --steps 0 \
  --width 64 --layers 2 --heads 4
same_file hf_llama/model.safetensors hf_again/model.safetensors

# ---- MoE with norms over all heads, and Muon, which needs whole matrices ----
mixture=(--model moe-nano --optimizer muon "${tree[@]}")
trains mixture 1 "${mixture[@]}" --save-every 4 --export "$work/hf_mixture"
run_training 4 mixture4 "${mixture[@]}" --ranks-per-process 2 --zero 2 --save-every 4 --check-replicas 2
same mixture4 mixture 0
run_training 2 mixture2 "${mixture[@]}" --pipeline 2 \
  --resume "$work/mixture4/checkpoints/step_00000004" --export "$work/hf_mixture2"
same mixture2 mixture 4
same_file hf_mixture2/model.safetensors hf_mixture/model.safetensors

# ---- LAMB, which needs norms of whole parameters ----
lamb=(--optimizer lamb --lr 0.01 "${tree[@]}")
trains lamb 1 "${lamb[@]}" --no-save
run_training 4 lamb4 "${lamb[@]}" --ranks-per-process 2 --zero 2 --save-every 4
same lamb4 lamb 0
run_training 2 lamb2 "${lamb[@]}" --pipeline 2 --resume "$work/lamb4/checkpoints/step_00000004"
same lamb2 lamb 4

# ---- Adafactor, which needs means of whole rows and columns ----
means=(--optimizer adafactor --lr 0.01 "${tree[@]}")
trains means 1 "${means[@]}" --no-save
run_training 4 means4 "${means[@]}" --ranks-per-process 2 --save-every 4
same means4 means 0
run_training 2 means2 "${means[@]}" --pipeline 2 --resume "$work/means4/checkpoints/step_00000004"
same means2 means 4
# Shards change the summation order. In steps of 1% of the weights, losses near 5 match up to
# rounding; other seeds, or statistics of half matrices, would differ by a tenth.
trains wide 1 --optimizer adafactor --lr 0.01 --no-save
for zero in 1 2 3; do
  run_training 2 "zero$zero" --optimizer adafactor --lr 0.01 --tensor 2 --ranks-per-process 2 \
    --zero "$zero" --save-every 4
  follows "zero$zero" wide 8 1e-3
done
run_training 4 zero4 --optimizer adafactor --lr 0.01 --tensor 2 --zero 3 --no-save
follows zero4 wide 8 1e-3
trains alone 1 --optimizer adafactor --lr 0.01 --resume "$work/zero3/checkpoints/step_00000004"

# ---- 8-bit moments, where 64 adjacent elements share a scale, are sharded with the weights ----
codes=(--optimizer adamw-8bit --width 256 --layers 1)
codes_tree=("${codes[@]}" "${tree[@]}")
trains codes 1 "${codes_tree[@]}" --save-every 4
for zero in 0 1 2; do
  run_training 2 "codes$zero" "${codes_tree[@]}" --ranks-per-process 4 --zero "$zero" --save-every 4
  same "codes$zero" codes 0
done
run_training 4 codes3 "${codes_tree[@]}" --ranks-per-process 2 --zero 3 --save-every 4
same codes3 codes 0
# A checkpoint with the scales and codes of any layout can be resumed on any other.
run_training 4 codes4 "${codes_tree[@]}" --resume "$work/codes3/checkpoints/step_00000004"
same codes4 codes 4
run_training 1 codes_back "${codes_tree[@]}" --resume "$work/codes2/checkpoints/step_00000004"
same codes_back codes 4
run_training 4 codes_grid "${codes_tree[@]}" --ranks-per-process 2 --zero 1 \
  --resume "$work/codes/checkpoints/step_00000004"
same codes_grid codes 4
# A run without tensor parallelism gives the same losses up to rounding.
trains codes_one 1 "${codes[@]}" --save-every 4
run_training 1 codes_two "${codes[@]}" --tensor 2 --no-save \
  --resume "$work/codes_one/checkpoints/step_00000004"
follows codes_two codes_one 4 1e-3

# ---- Adapters: A or B is sharded like the weight, the other one is replicated ----
lora=(--init "$work/hf_one" --lora-rank 4 --lr 0.01)
trains lora_one 1 "${lora[@]}" --no-save
run_training 1 lora_two "${lora[@]}" --no-save --tensor 2
follows lora_two lora_one 8 1e-4
lora+=("${tree[@]}")
trains lora 1 "${lora[@]}" --no-save --export "$work/peft_one"
for zero in 0 1 2 3; do
  processes=$((zero < 3 ? 2 : 4))
  run_training $processes "lora$zero" "${lora[@]}" --ranks-per-process $((8 / processes)) \
    --zero "$zero" --save-every 4 --export "$work/peft_$zero"
  same "lora$zero" lora 0
  same_file "peft_$zero/adapter_model.safetensors" peft_one/adapter_model.safetensors
done
run_training 4 lora4 "${lora[@]}" --resume "$work/lora3/checkpoints/step_00000004"
same lora4 lora 4
run_training 2 lora_grid "${lora[@]}" --pipeline 2 \
  --resume "$work/lora2/checkpoints/step_00000004"
same lora_grid lora 4
run_training 1 lora_back "${lora[@]}" --resume "$work/lora0/checkpoints/step_00000004"
same lora_back lora 4
for run in grid back; do
  "$BIN_DIR/shale" ckpt export "$work/lora_$run" --out "$work/merged_$run" >"$work/output" 2>&1 ||
    fail "export of lora_$run"
done
same_file merged_grid/model.safetensors merged_back/model.safetensors
# Adapters imported on another layout are exported unchanged.
trains lora_in 1 --init "$work/hf_one" --lora-init "$work/peft_one" --tensor 2 --steps 0 --no-save \
  --export "$work/peft_again"
same_file peft_again/adapter_model.safetensors peft_one/adapter_model.safetensors
# A Llama model, whose frozen weights have another dtype.
lora=(--init "$work/hf_llama" --lora-rank 4 --lr 0.01 --width 64 --frozen-dtype bf16
  --tensor 2 --reproducible --no-save --recompute full)
trains lora_llama 1 "${lora[@]}"
run_training 2 lora_llama2 "${lora[@]}"
same lora_llama2 lora_llama 0

# ---- Errors name values that would work ----
# refuses WORDS PROCESSES FLAGS...: the run fails with an error that contains WORDS.
refuses() {
  run_training "$2" refused --no-save "${@:3}"
  [[ $code -eq 64 ]] && grep -qF -- "$1" "$work/stdout" "$work/stderr" ||
    fail "${*:3}: exit code $code, expected 64 and \"$1\""
}
refuses "expected a number of parts that divides 1" 1 --tensor 2 --heads 1
refuses "--tensor 3: one copy of the model needs 3 ranks, found 1" 1 --tensor 3
refuses "--tensor 4: one copy of the model needs 4 ranks, found 3" 3 --tensor 4
refuses "has 256 elements; expected a number of parts that divides 256" 3 --tensor 3 \
  --reproducible
refuses "--pipeline 2, --tensor 2: one copy of the model needs 4 ranks" 1 --tensor 2 --pipeline 2
refuses "that divides --tensor times --context" 1 --tensor 4 --ranks-per-process 8
refuses "--ranks-per-process is 3 on 1 process with --tensor 3" 1 --tensor 3 --ranks-per-process 3
refuses "--tensor 4: one copy of the model needs 2 ranks, found 1" 1 --tensor 4 --ranks-per-process 2
refuses "--ranks-per-process has no effect without --tensor or --context" 1 --ranks-per-process 2
refuses "--ranks-per-process 2 is incompatible with --cuda-graph" 1 --tensor 2 --cuda-graph --device emu
refuses "--tensor-leaves was removed; use --tensor" 1 --tensor-leaves 4
refuses "MoE routers would count the padding; expected a multiple of 2" 1 --tensor 2 --seq-len 31 --model moe-nano
refuses "expected a multiple of 256" 1 --tensor 2 --seq-len 31 --attention-pattern local
refuses "a row length that is a multiple of 64" 1 --tensor 2 --optimizer adamw-8bit
refuses "a number of tensor ranks that divides 3" 1 --tensor 2 --optimizer adamw-8bit --width 192
refuses "use --frozen-dtype bf16" 1 --tensor 2 --init "$work/hf_one" --lora-rank 2 --frozen-dtype nf4
refuses "use --lora-dropout 0" 1 --tensor 2 --init "$work/hf_one" --lora-rank 2 --lora-dropout 0.1
refuses "--sample-tokens" 1 --tensor 2 --sample-tokens 5

finish
