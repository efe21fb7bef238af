#!/usr/bin/env bash
# Plans training runs with published speeds, and prints a table of both:
#
#   bench/published_runs.sh [BUILD_DIR] [PLOT.svg]      (default build/release; `shale` must be built)
#
# Published speeds are tokens per second and GPU. For Megatron-LM, they are computed from TFLOP/s
# per GPU by Megatron's own formula (arXiv:2104.04473, section 5.1): with its factor of 72, or 96
# with full recomputation. Clusters are in deploy/clusters. Those in bench/published are for other
# GPUs, and for programs whose step differs from Shale's; they describe the difference. Rows marked
# "set" were used to set the shares of the peak; they ran on one GPU or one node. Takes about three
# minutes.
set -euo pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
bin=${1:-$root/build/release}/bin
plot=${2:-}
rows=$(mktemp)
trap 'rm -f "$rows"' EXIT

# flag NAME FLAGS...: prints the value that follows --NAME
flag() {
  local name=$1
  shift
  while [[ $# -gt 1 && $1 != "--$name" ]]; do shift; done
  echo "${2:-}"
}
# row NAME SOURCE CLUSTER RANKS UNIT VALUE FLAGS...; UNIT: tokens (per second and GPU), tflops (per
# GPU; factor 72) or tflops96
row() {
  local name=$1 source=$2 cluster=$3 ranks=$4 unit=$5 value=$6
  shift 6
  local planned file=$root/bench/published/$cluster.json flags="$*"
  [[ -f $file ]] || file=$root/deploy/clusters/$cluster.json
  # For recompute "half", in which every other GEMM is recomputed, takes the mean of two plans.
  for how in selective full; do
    # shellcheck disable=SC2086 # options are words
    planned+=$("$bin/shale" plan --json --cluster "$file" --ranks "$ranks" --dtype bf16 \
      --threads 1 ${flags/recompute half/recompute $how} | tail -1) ||
      [[ $? -eq 71 ]]  # exit code 71: the plan needs more memory than a device has
    [[ $flags == *"recompute half"* ]] || break
  done
  awk -v name="$name" -v source="$source" -v cluster="$cluster" -v ranks="$ranks" -v unit="$unit" \
    -v value="$value" -v planned="$planned" -v h="$(flag width "$@")" -v l="$(flag layers "$@")" \
    -v s="$(flag seq-len "$@")" -v v="$(flag vocab "$@")" '
    function of(key,   sum, i, at, plans) {
      plans = split(planned, text, "}") - 1
      for (i = 1; i <= plans; ++i) {
        at = match(text[i], "\"" key "\": [0-9.e+-]+") + length(key) + 4
        sum += substr(text[i], at, RSTART + RLENGTH - at)
      }
      return sum / plans
    }
    function share(key) { return sprintf("%.0f%%", 100 * of(key) / of("step_s")) }
    BEGIN {
      if (unit != "tokens") {
        factor = unit == "tflops96" ? 96 : 72
        value = value * 1e12 / (factor * l * h * h * (1 + s / (6 * h) + v / (12 * h * l)))
      }
      plan = of("items") / of("step_s") / ranks
      printf "| %s | %s | %d x %s | %.0f | %.0f | %+.0f%% | %s | %s | %s | %s |\n", name, source,
             ranks, toupper(cluster), value, plan, 100 * (plan / value - 1), share("products_s"),
             share("exposed_data_s"), share("exposed_model_s"), share("bubble_s")
    }' | tee -a "$rows"
}
# By default, Megatron's collectives do not overlap GEMMs. If those of a run do, its cluster file
# says so.
gpt() { # LAYERS WIDTH HEADS TENSOR PIPELINE MICRO_BATCH GLOBAL_BATCH FLAGS...
  echo --model nano --layers "$1" --width "$2" --heads "$3" --tensor "$4" \
    $([[ $4 -gt 1 ]] && echo --tensor-pieces 1) --pipeline "$5" --micro-batch "$6" \
    --global-batch "$7" --zero 1 "${@:8}"
}

echo "| run | source | GPUs | published tok/s a GPU | planned | error | GEMMs | waits for data ranks | waits inside layers | waits for stages |"
echo "|---|---|---|---:|---:|---:|---:|---:|---:|---:|"
qwen="--seq-len 1024 --optimizer adamw-bf16 --grad-dtype bf16 --zero 1 --global-batch 512 --micro-batch"
q3="--model qwen2.5-1.5b --layers 36 --width 2048 --heads 16 --kv-heads 2 --hidden 11008"
q7="--model qwen2.5-1.5b --layers 28 --width 3584 --heads 28 --kv-heads 4 --hidden 18944"
row "Qwen2.5 0.5B (set)" llmq h100 1 tokens 149000 --model qwen2.5-0.5b $qwen 32
row "Qwen2.5 1.5B (set)" llmq h100 1 tokens 59100 --model qwen2.5-1.5b $qwen 32
row "Qwen2.5 3B (set)" llmq h100 1 tokens 30900 $q3 $qwen 16
row "Qwen2.5 7B (set)" llmq h100 1 tokens 13850 $q7 $qwen 4
row "Qwen2.5 0.5B" llmq h100 8 tokens 145000 --model qwen2.5-0.5b $qwen 32
row "Qwen2.5 1.5B" llmq h100 8 tokens 57100 --model qwen2.5-1.5b $qwen 32
row "Qwen2.5 3B" llmq h100 8 tokens 29900 $q3 $qwen 16
row "Qwen2.5 7B" llmq h100 8 tokens 14000 $q7 $qwen 8
row "Qwen2.5 0.5B (set)" llmq rtx4090 1 tokens 39850 --model qwen2.5-0.5b $qwen 16 --loss-chunk 1024
row "Qwen2.5 1.5B (set)" llmq rtx4090 1 tokens 14070 --model qwen2.5-1.5b $qwen 4 --loss-chunk 1024
row "Qwen2.5 0.5B" llmq rtx4090 4 tokens 38600 --model qwen2.5-0.5b $qwen 16 --loss-chunk 8192
row "Qwen2.5 1.5B" llmq rtx4090 4 tokens 13100 --model qwen2.5-1.5b $qwen 8 --loss-chunk 2048
# With --offload, the optimizer's moments are offloaded. For larger models, master weights and
# gradients are offloaded too, and blocks are fully recomputed from inputs that are offloaded.
host="--seq-len 1024 --optimizer adamw-bf16 --grad-dtype bf16 --global-batch 512 --loss-chunk 1024"
q14="--model qwen2.5-1.5b --layers 48 --width 5120 --heads 40 --kv-heads 8 --hidden 13824"
row "Qwen2.5 3B, offloaded" llmq rtx4090 1 tokens 7006 $q3 $host --micro-batch 4 \
  --offload optimizer --recompute selective
row "Qwen2.5 14B, offloaded" llmq rtx4090 1 tokens 1349 $q14 $host --micro-batch 32 --zero 3 \
  --offload params --offload-activations --recompute full
row "Qwen2.5 7B, offloaded" llmq rtx4090 4 tokens 2725 $q7 $host --micro-batch 16 --zero 3 \
  --offload params --offload-activations --recompute full
row "Qwen2.5 14B, offloaded" llmq rtx4090 4 tokens 1316 $q14 $host --micro-batch 32 --zero 3 \
  --offload params --offload-activations --recompute full
one="--seq-len 1024 --zero 1 --global-batch 512"
row "GPT-2 124M (set)" llm.c a100 8 tokens 218750 --model gpt2-124m $one --micro-batch 64
row "GPT-2 350M (set)" llm.c a100 8 tokens 79875 --model gpt2-355m $one --micro-batch 64
row "GPT-2 774M (set)" llm.c a100 8 tokens 38500 --model gpt2-774m $one --micro-batch 32
row "GPT-2 1558M" llm.c h100 8 tokens 46800 --model gpt2-1558m $one --micro-batch 16
row TinyLlama TinyLlama a100_40gb 16 tokens 24000 --model tinyllama-1.1b --seq-len 2048 --zero 3 \
  --micro-batch 8 --global-batch 1024
titan="--model llama3.1-8b --seq-len 8192 --zero 3 --micro-batch 2 --recompute half --global-batch"
row "Llama 3.1 8B (set)" torchtitan h100_500w 8 tokens 6667 $titan 16
row "Llama 3.1 8B" torchtitan h100_500w 128 tokens 6514 $titan 256
row "Qwen3 30B-A3B" Automodel h100 8 tokens 12040 --model qwen3-30b-a3b --seq-len 4096 --zero 3 \
  --expert 8 --micro-batch 4 --global-batch 512 --recompute full

mpt() { # NAME CLUSTER RANKS TOKENS LAYERS WIDTH HEADS SEQ_LEN MICRO_BATCH MICRO_BATCHES RECOMPUTE
  row "MPT $1" llm-foundry "$2" "$3" tokens "$4" --model nano --layers "$5" --width "$6" \
    --heads "$7" --vocab 50368 --seq-len "$8" --zero 3 --micro-batch "$9" \
    --global-batch $(($9 * ${10} * $3)) --recompute "${11}"
}
mpt "7B" a100 8 4641 32 4096 32 2048 6 2 none
mpt "1B" a100 8 20513 24 2048 16 2048 14 4 none
mpt "3B" a100 8 10811 32 2560 20 2048 10 2 none
mpt "13B" a100 8 2262 40 5120 40 2048 2 3 none
mpt "30B" a100 8 916 48 7168 56 2048 3 21 full
mpt "70B" a100 64 410 80 8192 64 2048 8 4 full
mpt "3B" a100_40gb 64 9736 32 2560 20 2048 6 1 none
mpt "7B" a100_40gb 128 3623 32 4096 32 2048 18 1 full
mpt "13B" a100_40gb 128 1972 40 5120 40 2048 16 1 full
mpt "30B" a100_40gb 128 865 48 7168 56 2048 6 1 full
mpt "70B" a100_40gb 128 376 80 8192 64 2048 4 1 full
mpt "7B (set)" h100_mpt 8 10643 32 4096 32 2048 6 1 none
mpt "1B" h100_mpt 8 45455 24 2048 16 2048 14 1 none
mpt "1B" h100_mpt 64 44402 24 2048 16 2048 20 1 none
mpt "3B" h100_mpt 64 22525 32 2560 20 2048 6 3 none
mpt "13B" h100_mpt 8 4792 40 5120 40 2048 2 1 none
mpt "13B" h100_mpt 64 4800 40 5120 40 2048 2 1 none
mpt "30B" h100_mpt 32 2308 48 7168 56 2048 14 3 full
mpt "70B" h100_mpt 64 1039 80 8192 64 2048 8 4 full

# The number of chunks per stage is not published unless a comment says so.
sp="--seq-len 2048 --vocab 51200 --dropout 0.1"
paper=2205.05198
chunks="--pipeline-schedule interleaved --pipeline-chunks 3"
row "22B, full recomputation" $paper a100_megatron 8 tokens 721 $(gpt 48 6144 64 8 1 4 4) $sp \
  --recompute full
row "22B, selective recomputation" $paper a100_megatron_selective 8 tokens 931 $(gpt 48 6144 64 8 1 4 4) $sp
row "175B, full recomputation" $paper a100_megatron 64 tokens 113 $(gpt 96 12288 96 8 8 1 64) $sp $chunks \
  --recompute full
row "175B, selective recomputation" $paper a100_megatron_selective 64 tokens 149 $(gpt 96 12288 96 8 8 1 64) \
  $sp $chunks
row "530B, full recomputation" $paper a100_megatron 280 tokens 41.75 $(gpt 105 20480 128 8 35 1 280) $sp \
  --pipeline-schedule interleaved --pipeline-chunks 3 --recompute full
row "530B, selective recomputation" $paper a100_megatron_selective 280 tokens 54.14 \
  $(gpt 105 20480 128 8 35 1 280) $sp $chunks
row "1T, full recomputation" $paper a100_megatron 512 tokens 21.69 $(gpt 128 25600 160 8 64 1 512) $sp \
  --recompute full
row "1T, selective recomputation" $paper a100_megatron_selective 512 tokens 28.65 $(gpt 128 25600 160 8 64 1 512) $sp

sc="$sp --recompute full"
paper=2104.04473
two="--pipeline-schedule interleaved --pipeline-chunks"
row "1.7B" $paper a100_megatron 32 tflops96 137 $(gpt 24 2304 24 1 1 4 512) $sc
row "3.6B" $paper a100_megatron 64 tflops96 138 $(gpt 30 3072 32 2 1 4 512) $sc
row "7.5B" $paper a100_megatron 128 tflops96 142 $(gpt 36 4096 32 4 1 4 512) $sc
row "18.4B" $paper a100_megatron 256 tflops96 135 $(gpt 40 6144 48 8 1 4 1024) $sc
row "39.1B" $paper a100_megatron 512 tflops96 138 $(gpt 48 8192 64 8 2 2 1536) $sc $two 2
row "76.1B" $paper a100_megatron 1024 tflops96 140 $(gpt 60 10240 80 8 4 2 1792) $sc $two 3
row "145.6B" $paper a100_megatron 1536 tflops96 148 $(gpt 80 12288 96 8 8 1 2304) $sc $two 2
row "310.1B" $paper a100_megatron 1920 tflops96 155 $(gpt 96 16384 128 8 16 1 2160) $sc $two 2
row "529.6B" $paper a100_megatron 2520 tflops96 163 $(gpt 105 20480 128 8 35 1 2520) $sc $two 3
row "1008B" $paper a100_megatron 3072 tflops96 163 $(gpt 128 25600 160 8 64 1 3072) $sc $two 2

core="--seq-len 4096 --vocab 131072"
name="Megatron-Core 0.8"
row "1.7B" "$name" h100_megatron 48 tflops 409 $(gpt 24 2048 16 1 1 1 192) $core
row "7.1B" "$name" h100_megatron 96 tflops 466 $(gpt 30 4096 32 2 1 1 192) $core
row "16B" "$name" h100_megatron 192 tflops 489 $(gpt 32 6144 48 4 1 1 192) $core
row "32B" "$name" h100_megatron 384 tflops 460 $(gpt 48 7168 56 8 1 1 192) $core
row "70B" "$name" h100_megatron 768 tflops 420 $(gpt 84 8192 64 8 2 1 384) $core $two 6
row "119B" "$name" h100_megatron 1536 tflops 421 $(gpt 92 10240 80 8 4 1 768) $core $two 23
row "177B" "$name" h100_megatron 2304 tflops 433 $(gpt 96 12288 96 8 6 1 1152) $core $two 4
row "314B" "$name" h100_megatron 3072 tflops 474 $(gpt 96 16384 128 8 8 1 1536) $core $two 4
row "462B" "$name" h100_megatron 6144 tflops 460 $(gpt 112 18432 144 8 16 1 3072) $core $two 7

# Whether exchanges overlap with GEMMs is not published. FLOP per token: 6 per parameter, plus 12
# per layer, channel and token of the sequence, which gives 2.638e12.
llama="--model llama3.1-70b --layers 126 --width 16384 --heads 128 --kv-heads 8 --hidden 53248"
llama="$llama --tensor 8 --tensor-pieces 1 --pipeline 16 --micro-batch 1 --zero 1 --seq-len 8192 --global-batch 2048"
row "Llama 3 405B" 2407.21783 h100 8192 tokens 163 $llama $two 8
row "Llama 3 405B" 2407.21783 h100 16384 tokens 151.6 $llama $two 8

awk -F'|' '!/\(set\)/ { ++all; e = $6 / $5 - 1; close_ones += e <= 0.15 && e >= -0.15 }
  END { printf "\n%d of the %d plans without \"(set)\" are within 15%% of the published speed.\n", close_ones, all }' "$rows"

[[ -n $plot ]] || exit 0
# Draws planned speed divided by published speed, as one dot per row, coloured by source. The band
# is 15% to each side.
awk -F'|' 'BEGIN { split("#4878a8 #d1605e #e7a24a #6a9f58 #8a6fb0 #a07050 #509090 #c080b0 #707070", color, " ") }
  { source = $3; gsub(/^ | $/, "", source); is_set[NR] = /\(set\)/; error[NR] = $6 / $5 - 1
    if (!(source in number)) { number[source] = ++sources; called[sources] = source }
    of[NR] = number[source] }
  function at(e) { return 160 - 240 * e }
  END {
    printf "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" font-family=\"sans-serif\" font-size=\"12\">\n", 80 + 11 * NR, 250 + 18 * sources
    print "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>"
    printf "<rect x=\"50\" y=\"%.1f\" width=\"%d\" height=\"72\" fill=\"#e8f0e8\"/>\n", at(0.15), 11 * NR
    print "<text x=\"10\" y=\"18\">planned tokens per second beside published; hollow: rows by which shares were set</text>"
    for (e = -30; e <= 45; e += 15) {
      printf "<line x1=\"50\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\" stroke=\"#c0c0c0\"/>\n", 50 + 11 * NR, at(e / 100), at(e / 100)
      printf "<text x=\"44\" y=\"%.1f\" text-anchor=\"end\">%+d%%</text>\n", at(e / 100) + 4, e
    }
    for (i = 1; i <= NR; i++) {
      c = color[of[i]]
      printf "<circle cx=\"%d\" cy=\"%.1f\" r=\"4\" stroke=\"%s\" fill=\"%s\"/>\n", 45 + 11 * i, at(error[i]), c, is_set[i] ? "white" : c
    }
    for (k = 1; k <= sources; k++) {
      printf "<circle cx=\"60\" cy=\"%d\" r=\"5\" fill=\"%s\"/>\n", 256 + 18 * (k - 1), color[k]
      printf "<text x=\"72\" y=\"%d\">%s</text>\n", 260 + 18 * (k - 1), called[k]
    }
    print "</svg>"
  }' "$rows" >"$plot"
