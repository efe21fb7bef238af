#!/usr/bin/env bash
# Holds planned times against measured steps on this machine's CPU:
#
#   bench/plan_accuracy.sh [BUILD_DIR]      (default build/release; it must be built)
#
# Each configuration is run by bench_train, the median of 5 steps, and planned by `shale plan
# --measure`, which measures the kernels and takes the collectives from CLUSTER (default
# deploy/clusters/cpu_host.json). Prints a table for a page of results: about 15 minutes on two
# cores, on a machine that has nothing else to do.
set -euo pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
bin=${1:-$root/build/release}/bin
cluster=${CLUSTER:-$root/deploy/clusters/cpu_host.json}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
if [ "$(id -u)" = 0 ]; then
  export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
fi

echo "| configuration | ranks x threads | measured ms | planned ms | error |"
echo "|---|---:|---:|---:|---:|"
# ranks, then options that both programs have
while read -r ranks flags; do
  threads=$((2 / ranks))
  # shellcheck disable=SC2086 # options are words
  mpirun -np "$ranks" --bind-to none "$bin/bench_train" $flags --threads $threads --steps 5 \
    --warmup 2 --no-floor --json "$work/rows.json" >/dev/null </dev/null
  # shellcheck disable=SC2086
  "$bin/shale" plan --cluster "$cluster" --measure --ranks "$ranks" --threads $threads $flags \
    --json >"$work/plan.json"
  measured=$(grep -o '"step_ms": *[0-9.]*' "$work/rows.json" | head -1 | grep -o '[0-9.]*$')
  planned=$(tail -1 "$work/plan.json" | grep -o '"step_s": *[0-9.e-]*' | sed 's/.*: *//')
  awk -v flags="${flags//--/}" -v shape="$ranks x $threads" -v m="$measured" -v p="$planned" \
    'BEGIN { printf "| %s | %s | %.1f | %.1f | %+.1f%% |\n", flags, shape, m, 1e3 * p,
             100 * (1e3 * p / m - 1) }'
done <<'RUNS'
1 --model nano --micro-batch 8 --seq-len 256
1 --model nano --micro-batch 32 --seq-len 256
1 --model gpt2-124m --micro-batch 4 --seq-len 256 --dtype fp32
1 --model gpt2-124m --micro-batch 4 --seq-len 256 --dtype bf16
1 --model gpt2-124m --micro-batch 1 --seq-len 1024 --dtype bf16
1 --model gpt2-124m --layers 4 --micro-batch 8 --seq-len 256 --dtype fp32
1 --model gpt2-355m --layers 6 --micro-batch 2 --seq-len 512 --dtype bf16
1 --model llama-nano --micro-batch 16 --seq-len 256
1 --model smollm2-135m --micro-batch 4 --seq-len 256 --dtype fp32
1 --model smollm2-135m --micro-batch 4 --seq-len 256 --dtype bf16
1 --model llama-160m --micro-batch 4 --seq-len 256 --dtype fp32
1 --model llama-160m --micro-batch 2 --seq-len 1024 --dtype bf16
1 --model moe-nano --micro-batch 16 --seq-len 256
2 --model nano --micro-batch 8 --seq-len 256
2 --model gpt2-124m --layers 4 --micro-batch 4 --seq-len 256 --dtype fp32
2 --model gpt2-124m --layers 4 --micro-batch 4 --seq-len 256 --dtype bf16 --zero 1
2 --model gpt2-124m --layers 4 --micro-batch 4 --seq-len 256 --dtype fp32 --zero 2
2 --model gpt2-124m --layers 4 --micro-batch 4 --seq-len 256 --dtype fp32 --zero 3
2 --model smollm2-135m --layers 10 --micro-batch 4 --seq-len 256 --dtype bf16
2 --model llama-160m --layers 4 --micro-batch 4 --seq-len 256 --dtype fp32 --zero 1
2 --model llama-160m --layers 4 --micro-batch 4 --seq-len 256 --dtype bf16 --zero 3
RUNS
