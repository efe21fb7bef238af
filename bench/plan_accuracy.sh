#!/usr/bin/env bash
# Compares planned times with measured steps on this machine's CPU:
#
#   bench/plan_accuracy.sh [BUILD_DIR] [steps|layouts]     (default build/release, which must be
#                                                           built, and both parts)
#
# steps: runs each configuration with bench_train (median of 5 steps), and plans it with `shale plan
# --measure`. That measures the kernels, and takes the collectives from CLUSTER (default
# deploy/clusters/cpu_host.json). About 15 minutes on two cores.
#
# layouts: runs one model with train_lm in different layouts, on four and on eight ranks that share
# the cores, with one thread each. Each of ROUNDS (default 3) rounds runs all layouts, so that
# disturbances affect all of them. Compares two numbers, and the orders in which they put the
# layouts: the processor time of a step over all ranks, as the kernel counts it, and the planned
# busy time of the cores. Numbers are medians over all but the first two steps of a run. About ten
# minutes.
#
# Both parts print tables for a page of results. Times of steps require an idle machine; processor
# time is less sensitive to other load.
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
# Each line has the number of ranks, then the options that both programs have.
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

# value KEY: prints the value of this key in the plan's line
value() { grep -o "\"$1\": *[0-9.e-]*" "$work/plan.json" | tail -1 | sed 's/.*: *//'; }
# median FILE COLUMN: prints the median of a column
median() { sort -n -k"$2,$2" "$1" | awk -v c="$2" '{ v[NR] = $c } END { print v[int((NR + 1) / 2)] }'; }

# ticks MPIRUN: prints the processor time that this mpirun's ranks have used so far
ticks() {
  local stats=()
  mapfile -t stats < <(pgrep -P "$1" -x train_lm | sed 's,.*,/proc/&/stat,')
  if [[ ${#stats[@]} == 0 ]]; then return; fi  # the ranks have ended
  awk '{ sum += $14 + $15 } END { print sum }' "${stats[@]}" 2>/dev/null || true
}

# run RANKS FLAGS: prints a line for each step but the first two: wall-clock milliseconds, and the
# processor time of all ranks
run() {
  local out=$work/out mpirun last='' now rows seen=0
  rm -rf "$out"
  # shellcheck disable=SC2086
  mpirun -np "$1" --bind-to none --oversubscribe "$bin/train_lm" $model $2 --data "$root/docs" \
    --out "$out" --steps 10 --threads 1 --eval-every 0 --save-every 0 --sample-tokens 0 --quiet \
    </dev/null >"$work/log" 2>&1 &
  mpirun=$!
  while kill -0 "$mpirun" 2>/dev/null; do
    sleep 0.01
    rows=$(grep -c '"step_ms"' "$out/metrics.jsonl" 2>/dev/null || true)
    [[ ${rows:-0} -gt $seen ]] || continue
    now=$(ticks "$mpirun")
    if [[ $seen -ge 2 && -n $last && -n $now && $rows == $((seen + 1)) ]]; then
      echo "$(grep -o '"step_ms": [0-9.]*' "$out/metrics.jsonl" | sed -n "${rows}s/.*: //p")" \
        "$(((now - last) * 1000 / tick))"
    fi
    seen=$rows last=$now
  done
  wait "$mpirun" || { cat "$work/log" >&2; exit 1; }
}

layouts() {
  local cores tick round i model="--model gpt2-124m --layers 4 --vocab 256 --seq-len 64 --dtype fp32"
  local ranks=() flags=()
  cores=$(nproc) tick=$(getconf CLK_TCK)
  while read -r n options; do ranks+=("$n") flags+=("$options"); done <<'RUNS'
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
  for ((round = 0; round < ${ROUNDS:-3}; ++round)); do
    for i in "${!flags[@]}"; do run "${ranks[i]}" "${flags[i]}" >>"$work/steps$i"; done
  done
  echo "| layout of ${model//--/} | ranks | measured ms | planned ms | processor ms | planned processor ms | error |"
  echo "|---|---:|---:|---:|---:|---:|---:|"
  for i in "${!flags[@]}"; do
    # shellcheck disable=SC2086
    "$bin/shale" plan --cluster "$cluster" --measure --ranks "${ranks[i]}" --threads 1 $model \
      ${flags[i]} --json | tail -1 >"$work/plan.json"
    # Cores are also busy while they move exchanged data. Only waiting for other pipeline stages
    # leaves them idle.
    awk -v flags="${flags[i]//--/}" -v ranks="${ranks[i]}" -v m="$(median "$work/steps$i" 1)" \
      -v cpu="$(median "$work/steps$i" 2)" -v p="$(value step_s)" -v idle="$(value bubble_s)" \
      -v cores="$cores" \
      'BEGIN { plan = 1e3 * (p - idle) * (ranks < cores ? ranks : cores)
               printf "| %s | %d | %.0f | %.0f | %.0f | %.0f | %+.0f%% |\n", flags, ranks, m, 1e3 * p,
                      cpu, plan, 100 * (plan / cpu - 1) }' | tee -a "$work/layouts"
  done
  order 4 "the step"
  order 6 "processor time"
}

# order COLUMN NAME: counts the pairs of layouts that this column orders as the measured times do.
# On shared cores, a waiting rank leaves its core to other ranks. Planned processor time therefore
# predicts both columns.
order() {
  for apart in 1.03 1.1 1.2; do
    awk -F'|' -v apart=$apart -v of="$1" -v name="$2" '{ ranks[NR] = $3; m[NR] = $of; p[NR] = $7
        for (i = 1; i < NR; ++i) {
          if (ranks[i] != ranks[NR] || (m[i] / m[NR] < apart && m[NR] / m[i] < apart)) continue
          ++pairs; right += (m[i] < m[NR]) == (p[i] < p[NR])
        } }
      END { printf "\n%d of %d pairs of layouts whose %s differs by more than %.0f%% are in order.\n",
                   right, pairs, name, 100 * apart - 100 }' "$work/layouts"
  done
}

[[ $part == layouts ]] || steps
[[ $part == steps ]] || layouts
