#!/usr/bin/env bash
# Plans runs whose speed others have published, and prints a table of both:
#
#   bench/published_runs.sh [BUILD_DIR]      (default build/release; `shale` must be built)
#
# What is published is tokens per second and GPU; of Megatron-LM's runs it follows from TFLOP/s a
# GPU by Megatron's own formula (arXiv:2104.04473, section 5.1), with 96 in place of 72 where the
# forward was computed again. A plan is of Shale's own step. Rows marked "set" are those by which the
# shares of the peak in deploy/clusters were set. About a minute.
set -euo pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
bin=${1:-$root/build/release}/bin
rows=$(mktemp)
trap 'rm -f "$rows"' EXIT

# flag NAME FLAGS...: the value that follows --NAME
flag() {
  local name=$1
  shift
  while [[ $# -gt 1 && $1 != "--$name" ]]; do shift; done
  echo "${2:-}"
}
# row NAME SOURCE CLUSTER RANKS UNIT VALUE FLAGS...; UNIT: tokens (a second and GPU), tflops (a GPU;
# the factor is 72) or tflops96
row() {
  local name=$1 source=$2 cluster=$3 ranks=$4 unit=$5 value=$6
  shift 6
  local planned
  planned=$("$bin/shale" plan --json --cluster "$root/deploy/clusters/$cluster.json" \
    --ranks "$ranks" --dtype bf16 --threads 1 "$@" | tail -1)
  awk -v name="$name" -v source="$source" -v cluster="$cluster" -v ranks="$ranks" -v unit="$unit" \
    -v value="$value" -v planned="$planned" -v h="$(flag width "$@")" -v l="$(flag layers "$@")" \
    -v s="$(flag seq-len "$@")" -v v="$(flag vocab "$@")" '
    function of(key) { match(planned, "\"" key "\": [0-9.e+-]+"); return substr(planned, RSTART + length(key) + 4, RLENGTH - length(key) - 4) + 0 }
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
gpt() { # LAYERS WIDTH HEADS TENSOR PIPELINE MICRO_BATCH GLOBAL_BATCH FLAGS...: Megatron's
  echo --model nano --layers "$1" --width "$2" --heads "$3" --tensor "$4" --pipeline "$5" \
    --micro-batch "$6" --global-batch "$7" --zero 1 "${@:8}"
}

echo "| run | source | GPUs | published tok/s a GPU | planned | error | products | waits: data | layers | stages |"
echo "|---|---|---|---:|---:|---:|---:|---:|---:|---:|"
one="--seq-len 1024 --zero 1 --global-batch 512"
row "Qwen2.5 0.5B (set)" llmq h100 1 tokens 149000 --model qwen2.5-0.5b $one --micro-batch 16
row "Qwen2.5 1.5B (set)" llmq h100 1 tokens 59000 --model qwen2.5-1.5b $one --micro-batch 16
row "GPT-2 124M (set)" llm.c a100 8 tokens 218750 --model gpt2-124m $one --micro-batch 64
row "GPT-2 350M (set)" llm.c a100 8 tokens 79875 --model gpt2-355m $one --micro-batch 64
row "GPT-2 774M (set)" llm.c a100 8 tokens 38500 --model gpt2-774m $one --micro-batch 32
row "GPT-2 1558M" llm.c h100 8 tokens 46800 --model gpt2-1558m $one --micro-batch 16
row TinyLlama TinyLlama a100 16 tokens 24000 --model tinyllama-1.1b --seq-len 2048 --zero 1 \
  --micro-batch 8 --global-batch 1024
row "Llama 3.1 8B" torchtitan h100 8 tokens 6667 --model llama3.1-8b --seq-len 8192 --zero 3 \
  --micro-batch 1 --global-batch 8 --recompute selective
row "MPT 7B" llm-foundry h100 8 tokens 10600 --model nano --layers 32 --width 4096 --heads 32 \
  --vocab 50368 --seq-len 2048 --zero 3 --micro-batch 8 --global-batch 64 --recompute full
sc="--seq-len 2048 --vocab 51200 --recompute full"
paper=2104.04473
row "1.7B" $paper a100 32 tflops96 137 $(gpt 24 2304 24 1 1 4 512) $sc
row "3.6B" $paper a100 64 tflops96 138 $(gpt 30 3072 32 2 1 4 512) $sc
row "7.5B" $paper a100 128 tflops96 142 $(gpt 36 4096 32 4 1 4 512) $sc
row "18.4B" $paper a100 256 tflops96 135 $(gpt 40 6144 48 8 1 4 1024) $sc
row "39.1B" $paper a100 512 tflops96 138 $(gpt 48 8192 64 8 2 2 1536) $sc
row "76.1B" $paper a100 1024 tflops96 140 $(gpt 60 10240 80 8 4 2 1792) $sc
row "145.6B" $paper a100 1536 tflops96 148 $(gpt 80 12288 96 8 8 1 2304) $sc
row "310.1B" $paper a100 1920 tflops96 155 $(gpt 96 16384 128 8 16 1 2160) $sc
sp="--seq-len 2048 --vocab 51200"
chunks="--pipeline-schedule interleaved --pipeline-chunks 3"
paper=2205.05198
row "22B, all again" $paper a100 8 tokens 721 $(gpt 48 6144 64 8 1 4 4) $sp --recompute full
row "22B, selective" $paper a100 8 tokens 931 $(gpt 48 6144 64 8 1 4 4) $sp --recompute selective
row "175B, all again" $paper a100 64 tokens 113 $(gpt 96 12288 96 8 8 1 64) $sp $chunks \
  --recompute full
row "175B, selective" $paper a100 64 tokens 149 $(gpt 96 12288 96 8 8 1 64) $sp $chunks \
  --recompute selective
core="--seq-len 4096 --vocab 131072"
name="Megatron-Core 0.8"
row "1.7B" "$name" h100 48 tflops 409 $(gpt 24 2048 16 1 1 1 192) $core
row "7.1B" "$name" h100 96 tflops 466 $(gpt 30 4096 32 2 1 1 192) $core
row "16B" "$name" h100 192 tflops 489 $(gpt 32 6144 48 4 1 1 192) $core
row "32B" "$name" h100 384 tflops 460 $(gpt 48 7168 56 8 1 1 192) $core
row "70B" "$name" h100 768 tflops 420 $(gpt 84 8192 64 8 2 1 384) $core \
  --pipeline-schedule interleaved --pipeline-chunks 6
row "119B" "$name" h100 1536 tflops 421 $(gpt 92 10240 80 8 4 1 768) $core \
  --pipeline-schedule interleaved --pipeline-chunks 5
row "177B" "$name" h100 2304 tflops 433 $(gpt 96 12288 96 8 6 1 1152) $core \
  --pipeline-schedule interleaved --pipeline-chunks 4
row "314B" "$name" h100 3072 tflops 474 $(gpt 96 16384 128 8 8 1 1536) $core \
  --pipeline-schedule interleaved --pipeline-chunks 4

awk -F'|' '!/\(set\)/ { ++all; e = $7 + 0; if (e < 0) e = -e; close_ones += e <= 15 }
  END { printf "\n%d of %d that were not set are within 15%%.\n", close_ones, all }' "$rows"
