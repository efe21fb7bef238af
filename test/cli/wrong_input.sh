#!/usr/bin/env bash
# Tests wrong input to train_lm. Each kind ends with its exit code and one clear line, before any
# training, on every number of ranks, without a hang.
source "$(dirname "${BASH_SOURCE[0]}")/../support/cli.sh"

train="$BIN_DIR/train_lm"
fixtures="$(cd "$(dirname "$0")/../fixtures/gpt2" && pwd)"
llamas="$(cd "$(dirname "$0")/../fixtures/llama" && pwd)"
cases=0

# ---- Inputs ----

text="$work/text.txt"
for i in $(seq 2000); do echo "line $i of a text that is long enough"; done >"$text"
: >"$work/empty.txt"

# llm.c shards: int32[256] header (magic 20240520, version 1, tokens), then uint16 tokens.
shard() {  # shard FILE MAGIC COUNT_IN_HEADER TOKENS TOKEN
  perl -e '
    my ($file, $magic, $count, $tokens, $token) = @ARGV;
    open(my $out, ">:raw", $file) or die;
    print $out pack("l<256", $magic, 1, $count, (0) x 253), pack("S<", $token) x $tokens;' "$@"
}
shard "$work/truncated.bin" 20240520 5000 4000 7
shard "$work/magic.bin" 12345678 5000 5000 7
shard "$work/token.bin" 20240520 5000 5000 50257
shard "$work/small.bin" 20240520 5000 5000 7
mkdir "$work/foreign"
cp "$llamas/llama_tied/config.json" "$work/foreign/config.json"
cp "$llamas/qwen2/model.safetensors" "$work/foreign/model.safetensors"
mkdir "$work/read_only_parent"
: >"$work/read_only_parent/file"
echo '{"block": 128, "rows": [[0], [0, 2]]}' >"$work/rows.json"
echo '{"block": 128, "rows": [[0]]}' >"$work/row.json"
echo '{"pattern": "local", "block": 100}' >"$work/wide.json"
echo '{"pattern": "longformer", "random": 1}' >"$work/random.json"
echo '{"steps": 3, "prefetch": 2}' >"$work/removed.json"
echo '{"stepz": 3}' >"$work/unknown_key.json"
echo '{"steps": "three"}' >"$work/wrong_type.json"

# ---- Checks ----

# expect CODE WORDS... -- FLAGS...: runs train_lm on 1 rank (without mpirun) and on 3.
expect() {
  local code=$1 words=()
  shift
  while [[ $1 != -- ]]; do words+=("$1"); shift; done
  shift
  for ranks in 1 3; do
    cases=$((cases + 1))
    launch "$ranks" "$train" --out "$work/out" "$@" >"$work/stdout" 2>"$work/stderr"
    local got=$?
    # mpirun adds its own messages; only lines of the program contain "error:".
    local lines
    lines=$(grep -c 'error:' "$work/stderr")
    local bad=""
    [[ $got -eq $code ]] || bad+=" exit code $got, expected $code;"
    [[ $lines -eq 1 ]] || bad+=" $lines error lines, expected 1;"
    grep -q '^step' "$work/stdout" && bad+=" it trained;"
    local written
    for written in "$work"/{out/metrics.jsonl,out/checkpoints,none}; do
      [[ $code -le 66 && -e $written ]] && bad+=" it wrote $written;"
    done
    for word in "${words[@]}"; do
      grep 'error:' "$work/stderr" | grep -qF -- "$word" || bad+=" the error does not say '$word';"
    done
    if [[ -n $bad ]]; then
      failures=$((failures + 1))
      echo "FAILED on $ranks ranks: $*:$bad"
      sed 's/^/    /' "$work/stderr" | head -n 12
    fi
  done
}

expect 64 "--data" --
expect 64 "--stepz" "--steps" -- --data "$text" --stepz 3
expect 64 "stepz" "steps" "unknown_key.json" -- --data "$text" --config "$work/unknown_key.json"
expect 64 "steps" "wrong_type.json" -- --data "$text" --config "$work/wrong_type.json"
expect 64 "gpt3" "nano" -- --data "$text" --model gpt3
expect 64 "7" "multiple" -- --data "$text" --global-batch 7 --micro-batch 2
expect 64 ".svg" ".pickle" -- --data "$text" --trace memory.txt
expect 64 "--trace-steps needs a timeline" -- --data "$text" --trace memory.svg --trace-steps 3-5
expect 64 "width" "heads" -- --data "$text" --width 100 --heads 3
expect 64 "'butterfly'" "longformer" -- --data "$text" --attention-pattern butterfly
expect 65 "wide.json" "multiple of 128" -- --data "$text" --attention-pattern "$work/wide.json"
expect 65 "random is 1" "longformer" -- --data "$text" --attention-pattern "$work/random.json"
expect 65 "row 1 lists block 2" "rows.json" -- --data "$text" --attention-pattern "$work/rows.json"
expect 64 "1 rows of 128" "512" -- --data "$text" --attention-pattern "$work/row.json" --seq-len 512
expect 64 "--export" "--attention-pattern" -- --data "$text" --attention-pattern local \
  --export "$work/none"
expect 64 "kv-heads is 3" "divisor of heads = 4" -- --data "$text" --model llama-nano --kv-heads 3
expect 64 "--window" "found '0'" -- --data "$text" --model llama-nano --window 0
expect 64 "window is 8" "gpt2" -- --data "$text" --window 8
expect 64 "--seq-len is 65" "context length of the model, 64" -- --data "$work/small.bin" --data-format llmc \
  --init "$llamas/llama_tied" --seq-len 65
expect 65 "self_attn.q_proj.bias" "unknown" -- --data "$work/small.bin" --data-format llmc \
  --seq-len 16 --init "$work/foreign"
expect 64 "active-experts is 9" "1 to experts = 8" -- \
  --data "$text" --model moe-nano --active-experts 9
expect 64 "window of 8" "files of llama" "mistral" \
  -- --data "$text" --model llama-nano --window 8 --export "$work/none"
expect 64 "experts is 8" "none" -- --data "$text" --model llama-nano --experts 8
expect 64 "--capacity-factor" "no MoE" -- --data "$text" --capacity-factor 2
expect 64 "--router-bias-rate" "no MoE" -- --data "$text" --router-bias-rate 0.001
expect 64 "--router-bias-rate" "files of olmoe" \
  -- --data "$text" --model moe-nano --router-bias-rate 0.001 --export "$work/none"
expect 64 "--seq-len" "1024" -- --data "$text" --model gpt2-124m --seq-len 2048
expect 64 "--lr" -- --data "$text" --lr fast
expect 64 "--prometheus" "IPV4:PORT" "localhost" -- --data "$text" --prometheus localhost:1
expect 64 "--min-lr" "constant" -- --data "$text" --schedule constant --min-lr 1e-5
expect 64 "--min-lr" "linear-to-zero" -- --data "$text" --schedule linear-to-zero --min-lr 1e-5
expect 64 "--decay-steps" "at most" -- --data "$text" --schedule wsd --steps 10 --decay-steps 11
expect 64 "--eps" "does not use" -- --data "$text" --optimizer sgd --eps 1e-6
expect 64 "beta2" "bf16" -- --data "$text" --optimizer adamw-bf16 --beta2 0.999
expect 64 "--param-groups" "rate" -- --data "$text" --param-groups "*.bias:rate=2"
expect 64 "*.scale" "no parameter" -- --data "$text" --param-groups "*.scale:lr=2"
expect 64 "--ema" "1" -- --data "$text" --ema 1
expect 64 "--balance-loss" "no MoE" -- --data "$text" --balance-loss 0.1
expect 64 "--data-format raw" "use --data-format u8, u16 or u32" -- --data "$text" --data-format raw
expect 64 "--data-field" "jsonl" -- --data "$text" --data-field body
expect 64 "--data-cache" "corpus" -- --data "$text" --data-cache "$work/none"
expect 64 "--batch-ramp" "BATCH:STEPS" "6;9" -- --data "$text" --micro-batch 1 --global-batch 12 --batch-ramp "6:6;9"
expect 64 "batch-ramp is 7" "multiple" -- --data "$text" --micro-batch 2 --global-batch 12 --batch-ramp 12:5,7:5
expect 64 "--skip-samples" "expected A-B" "9-3" -- --data "$text" --skip-samples 9-3
expect 64 "--skip-non-finite" "-1" -- --data "$text" --skip-non-finite -1
expect 64 "--save-minutes" "auto, or a number of at least 0" "often" -- --data "$text" --save-minutes often
expect 69 "NCCL" "cpu" -- --data "$text" --comm nccl
expect 65 "empty.txt" -- --data "$work/empty.txt"
expect 65 "truncated.bin" -- --data "$work/truncated.bin" --data-format llmc
expect 65 "magic.bin" "12345678" -- --data "$work/magic.bin" --data-format llmc
expect 65 "token.bin" "50257" -- --data "$work/token.bin" --vocab 50257
expect 65 "token.bin" "50257" -- --data "$work/token.bin" --model gpt2-124m
expect 65 "validation" -- --data "$text" --eval-every 1 --val-fraction 0
expect 65 "tokens" -- --data "$text" --eval-every 1 --seq-len 8000
expect 64 "--layers" "5" -- --data "$text" --init "$fixtures/hf_tiny" --layers 5
expect 64 "--seq-len" "32" -- --data "$text" --init "$fixtures/hf_tiny" --seq-len 64
expect 64 "--lora-rank" "needs --init" -- --data "$text" --lora-rank 2
lora=(--data "$text" --init "$fixtures/hf_tiny" --seq-len 16 --lora-rank 2)
hosted=(--tensor 2 --ranks-per-process 2)
expect 64 "--lora-dropout 0.1" "--tensor" -- "${lora[@]}" --lora-dropout 0.1 "${hosted[@]}"
expect 64 "--frozen-dtype nf4" "use --frozen-dtype bf16" -- "${lora[@]}" --frozen-dtype nf4 "${hosted[@]}"
expect 64 "--lora-dropout 0.1" "--context" -- "${lora[@]}" --lora-dropout 0.1 --context 2 --ranks-per-process 2
expect 64 "--task dpo" "--context 2" -- --data "$text" --task dpo --context 2 --ranks-per-process 2
expect 64 "--task dpo" "--tensor 2" -- --data "$text" --task dpo "${hosted[@]}"
expect 65 "vocabulary" "96" -- --data "$text" --init "$fixtures/hf_tiny" --seq-len 16
expect 66 "no_tokenizer.json" -- --data "$text" --tokenizer "$work/no_tokenizer.json"
expect 65 "wrong_type.json: 'model' is missing" -- --data "$text" \
  --tokenizer "$work/wrong_type.json"
expect 66 "nowhere.txt" -- --data "$work/nowhere.txt"
expect 66 "nowhere" -- --data "$text" --init "$work/nowhere"
expect 69 "CUDA" -- --data "$text" --device cuda
expect 64 "--zero" "4" -- --data "$text" --zero 4
expect 64 "--optimizer 1bit-adam" "--shard-ranks" -- --data "$text" --optimizer 1bit-adam
expect 64 "--optimizer 01-adam was removed; use --optimizer 1bit-adam" -- --data "$text" \
  --optimizer 01-adam
expect 64 "--parallel was removed; use shale plan --layouts --write" -- --data "$text" --parallel auto
expect 64 "--help: " "found 'nothing'" "groups are data, model" -- --help nothing
expect 64 "--local-most was removed; use --outer-every" -- --data "$text" --local-most 8
expect 64 "--trust-min was removed; leave it out" -- --data "$text" --optimizer lamb --trust-min 20
expect 64 "--outer-every 5" "--shard-ranks" -- --data "$text" --outer-every 5
expect 64 "--outer-momentum" "1" -- --data "$text" --outer-every 5 --outer-momentum 1
expect 64 "--quantize-gathers 8" "--zero 2" -- --data "$text" --quantize-gathers 8 --zero 1
expect 64 "--quantize-reductions" "5" -- --data "$text" --quantize-reductions 5
expect 64 "--shard-ranks" "--zero 0" -- --data "$text" --shard-ranks 1
expect 64 "--pipeline 4" "start a multiple of 4 processes" -- --data "$text" --pipeline 4
expect 64 "--ranks-per-process" "--tensor" -- --data "$text" --ranks-per-process 2
expect 64 "--ranks-per-process is 8" "that divides --tensor times" -- --data "$text" --tensor 4 \
  --ranks-per-process 8
expect 64 "--ranks-per-process" "many" -- --data "$text" --tensor 4 --ranks-per-process many
expect 64 "--expert 2" "processes as ranks" -- --data "$text" "${hosted[@]}" --expert 2
expect 64 "--cuda-graph" "as many processes as ranks" -- --data "$text" "${hosted[@]}" --cuda-graph --device emu
expect 64 "--pipeline-schedule" "--pipeline above 1" -- --data "$text" --pipeline-schedule gpipe
expect 64 "--micro-batches was removed; use --global-batch" -- --data "$text" --micro-batches 3
expect 64 "--reshard-ranks" "--zero 2" -- --data "$text" --zero 2 --reshard-ranks 1
expect 64 "--check-replicas" "--zero 3" -- --data "$text" --zero 3 --check-replicas 5
expect 64 "--reproducible" "power of two" -- --data "$text" --reproducible --micro-batch 1 --global-batch 18
expect 64 "--reproducible" "fp32" -- --data "$text" --reproducible --grad-dtype bf16
expect 64 "--cuda-graph" "--device cpu" -- --data "$text" --cuda-graph --device cpu
expect 64 "--cuda-graph" "--offload" -- --data "$text" --cuda-graph --device emu --offload optimizer
expect 64 "--cuda-graph" "--batch-ramp" -- --data "$text" --cuda-graph --device emu --batch-ramp 48:5
expect 64 "--dependent-launch was removed; " -- --data "$text" --dependent-launch
expect 69 "--dtype bf16" "emu:75" "7.5" "--dtype fp16" -- --data "$text" --dtype bf16 --device emu:75
expect 69 "emu:75" "bf16" -- --data "$text" --dtype fp16 --grad-dtype bf16 --device emu:75
expect 64 "--fp8-scaling" "row" -- --data "$text" --dtype fp8 --fp8-scaling row
expect 64 "removed.json: prefetch was removed; " -- --data "$text" --config "$work/removed.json"
expect 71 "memory" "budget" -- --data "$text" --device-memory 4MiB
expect 74 "read_only_parent/file" -- --data "$text" --out "$work/read_only_parent/file/below"

[[ $cases -gt 0 ]] || fail "no case ran"
finish "$cases passed"
