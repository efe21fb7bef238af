#!/usr/bin/env bash
# Holds planned times against measured steps on this machine's CPU:
#
#   bench/plan_accuracy.sh [BUILD_DIR] [steps|layouts]     (default build/release, which must be
#                                                           built, and both parts)
#
# steps: each configuration is run by bench_train, the median of 5 steps, and planned by `shale plan
# --measure`, which measures the kernels and takes the collectives from CLUSTER (default
# deploy/clusters/cpu_host.json). About 15 minutes on two cores.
#
# layouts: one model on four and on eight ranks of a thread each, which share the cores, in ways that
# differ in nothing but the layout. train_lm runs each. The processor time of a step (measured: that
# of eight steps without that of two) is held against what the planned kernels take on all cores, and
# the order of layouts by it against the measured one. About three minutes.
#
# Both print tables for a page of results, on a machine that has nothing else to do.
set -euo pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
bin=${1:-$root/build/release}/bin
part=${2:-both}
cluster=${CLUSTER:-$root/deploy/clusters/cpu_host.json}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
if [ "$(id -u)" = 0 ]; then
  export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
fi

steps() {
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
}

# value KEY: of a plan's line
value() { grep -o "\"$1\": *[0-9.e-]*" "$work/plan.json" | tail -1 | sed 's/.*: *//'; }

# run STEPS RANKS FLAGS: sets `seconds`, of the processors, and leaves metrics.jsonl
run() {
  rm -rf "$work/out"
  local TIMEFORMAT='%U %S'
  # shellcheck disable=SC2086
  seconds=$({ time mpirun -np "$2" --bind-to none --oversubscribe "$bin/train_lm" $model $3 \
    --data "$root/docs" --out "$work/out" --steps "$1" --threads 1 --eval-every 0 --save-every 0 \
    --sample-tokens 0 --quiet </dev/null >/dev/null 2>&1; } 2>&1 | awk '{ print $1 + $2 }')
}

layouts() {
  local cores model="--model gpt2-124m --layers 4 --vocab 256 --seq-len 64 --dtype fp32"
  cores=$(nproc)
  echo "| layout of ${model//--/} | ranks | measured ms | planned ms | processor ms | planned | error |"
  echo "|---|---:|---:|---:|---:|---:|---:|"
  while read -r ranks flags; do
    run 2 "$ranks" "$flags"
    local start=$seconds
    run 8 "$ranks" "$flags"
    measured=$(grep -o '"step_ms": [0-9.]*' "$work/out/metrics.jsonl" | tail -6 |
      sort -t: -k2 -n | sed -n 3p | sed 's/.*: //')
    # shellcheck disable=SC2086
    "$bin/shale" plan --cluster "$cluster" --measure --ranks "$ranks" --threads 1 $model $flags \
      --json | tail -1 >"$work/plan.json"
    awk -v flags="${flags//--/}" -v ranks="$ranks" -v m="$measured" -v p="$(value step_s)" \
      -v waits="$(value bubble_s) $(value exposed_data_s) $(value exposed_model_s)" \
      -v all="$seconds" -v start="$start" -v cores="$cores" \
      'BEGIN { cpu = 1e3 * (all - start) / 6; split(waits, w, " ")
               plan = 1e3 * (p - w[1] - w[2] - w[3]) * cores
               printf "| %s | %d | %.0f | %.0f | %.0f | %.0f | %+.0f%% |\n", flags, ranks, m, 1e3 * p,
                      cpu, plan, 100 * (plan / cpu - 1) }' | tee -a "$work/layouts"
  done <<'RUNS'
4 --zero 0 --micro-batch 2 --global-batch 16
4 --zero 1 --micro-batch 4 --global-batch 16
4 --zero 3 --micro-batch 1 --global-batch 16
4 --zero 3 --micro-batch 4 --global-batch 16 --recompute full
4 --zero 1 --micro-batch 4 --global-batch 16 --tensor 2
4 --zero 0 --micro-batch 4 --global-batch 16 --tensor 4
4 --zero 1 --micro-batch 4 --global-batch 16 --pipeline 2
4 --zero 0 --micro-batch 2 --global-batch 16 --pipeline 4
4 --zero 1 --micro-batch 4 --global-batch 16 --context 2
8 --zero 1 --micro-batch 2 --global-batch 16
8 --zero 3 --micro-batch 2 --global-batch 16 --recompute full
8 --zero 1 --micro-batch 4 --global-batch 16 --tensor 4
8 --zero 1 --micro-batch 2 --global-batch 16 --pipeline 4
RUNS
  # On cores that ranks share, a rank that waits leaves its core to others: the step takes its work.
  for apart in 1.03 1.1 1.2; do
    awk -F'|' -v apart=$apart '{ ranks[NR] = $3; m[NR] = $4; p[NR] = $7
        for (i = 1; i < NR; ++i) {
          if (ranks[i] != ranks[NR] || (m[i] / m[NR] < apart && m[NR] / m[i] < apart)) continue
          ++pairs; right += (m[i] < m[NR]) == (p[i] < p[NR])
        } }
      END { printf "\n%d of %d pairs of layouts that differ by more than %.0f%% are in the measured order.\n",
                   right, pairs, 100 * apart - 100 }' "$work/layouts"
  done
}

[[ $part == layouts ]] || steps
[[ $part == steps ]] || layouts
