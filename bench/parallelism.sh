#!/usr/bin/env bash
# Trains one small model on 1, 2, 4 and 8 ranks of this machine along each axis of parallelism:
#
#   bench/parallelism.sh [BUILD_DIR]      (default build/release; it must be built)
#
# Writes bench/results/parallelism.md, and takes some minutes on an idle machine. If there are more
# ranks than cores, wall time depends on the cores; processor time then shows the cost of an axis.
# Planned tables need a build with the emulator. Variables:
#   RANKS      default "2 4 8"
#   STEPS      measured steps; default 5
#   ROWS       rows of an earlier run, from which only the page is written
#   ROWS_ONLY  file for the rows; no page is written
#   PART       with ROWS_ONLY, the part of the rows: small, two_cores, weak or planned
#   PAGE       output file
set -euo pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
program=${1:-$root/build/release}/bin/train_lm
[[ -z ${PART:-} || -n ${ROWS_ONLY:-} ]] ||
  { echo "parallelism.sh: PART is ${PART:-}, which is not the whole page: set ROWS_ONLY too" >&2; exit 64; }
[[ -x $program ]] || { echo "parallelism.sh: $program is missing: build first" >&2; exit 66; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1

ranks=${RANKS:-2 4 8}
steps=${STEPS:-5}
page=${PAGE:-$root/bench/results/parallelism.md}
skipped=2  # steps before the measured ones; the first step builds the model
batch=8  # sequences a step
shared=(--seq-len 256 --micro-batch 1 --threads 1 --dtype fp32
  --steps $((skipped + steps)) --report-every $((skipped + steps)) --no-save --quiet)
dense=(--layers 8 --width 256 --heads 8)
mixture=(--model moe-nano --layers 6 --width 128 --experts 8 --active-experts 2)
big=(--model nano --layers 24 --width 2048 --heads 16 --vocab 50304 --seq-len 2048 --micro-batch 2
  --dtype bf16 --cluster h100)

# Prints a column of the measured steps in $work/out.
column() {
  sed -nE "s/^\{\"step\": ([0-9]+), .*\"$1\": ([0-9.e+-]+).*/\1 \2/p" "$work/out/metrics.jsonl" |
    awk -v skipped=$skipped '$1 > skipped { print $2 }'
}
mean() { awk '{ sum += $1; n++ } END { if (n > 0) printf "%.6f", sum / n; else print 0 }'; }
# share ...: prints, from the report of ranks, the median over ranks of a share of the time, in
# percent.
share() {
  sed -nE "s/.*\"$1_median\": ([0-9.e+-]+).*/\1/p" "$work/out/metrics.jsonl" | tail -n 1 |
    awk '{ printf "%.0f", 100 * $1 }'
}
# Prints the processor time of a command and its children, in seconds.
seconds() {
  local TIMEFORMAT='%U %S'
  { time "$@" >"$work/log" 2>&1 || touch "$work/failed"; } 2>&1 | awk '{ print $1 + $2 }'
}
# later_seconds STEPS COMMAND...: prints the processor time of all steps of a run except the first.
# Leaves the run's files in $work/out.
later_seconds() {
  local count=$1 first all
  shift
  rm -rf "$work/out"
  first=$(seconds "$@" --steps 1 --report-every 0)
  rm -rf "$work/out"
  all=$(seconds "$@" --steps "$count")
  if [[ -e $work/failed ]]; then tail -n 20 "$work/log" >&2; return 1; fi
  awk -v a="$first" -v b="$all" 'BEGIN { print b - a }'
}

# measure AXIS RANKS FLAGS...: adds a row. The processor time of a run of one step is subtracted, so
# that the start of the run does not count.
measure() {
  local axis=$1 n=$2 tokens=$((256 * batch)) later key=all flag
  shift 2
  for flag in "$@"; do
    case $flag in
      --tensor | --context | --pipeline | --expert)
        if [[ $key == all ]]; then key=${flag#--}; else key=several; fi ;;
    esac
  done
  [[ $key == several ]] && key=all
  local run=(mpirun -np "$n" --oversubscribe --bind-to none "$program" --data "$work/text.txt"
    --out "$work/out" "${shared[@]}" --global-batch "$batch" "$@")
  later=$(later_seconds $((skipped + steps)) "${run[@]}")
  local sent=0 kind
  for kind in gradients parameters activations; do
    sent=$(column "sent_${kind}_bytes" | mean | awk -v sum="$sent" '{ print sum + $1 }')
  done
  local waited flying
  waited=$(share "comm_exposed_share_$key")
  flying=$(share "comm_in_flight_share_$key")
  printf '%s|%s|%s|%.1f|%.0f|%.0f|%s|%s|%.1f|%s\n' "$axis" "$n" \
    "$(column step_ms | sort -n | awk -v t=$tokens \
      '{ ms[NR] = $1 } END { printf "%.0f", t / ms[int((NR + 1) / 2)] * 1000 }')" \
    "$(awk -v s="$later" -v n=$((skipped + steps - 1)) -v t=$tokens \
      'BEGIN { print s / n / t * 1e6 }')" \
    "${waited:-0}" "${flying:-0}" "$(column bubble_ms | mean | awk '{ printf "%.0f", $1 }')" \
    "$(column step_ms | mean | awk '{ printf "%.0f", $1 }')" \
    "$(awk -v b="$sent" 'BEGIN { print b / 1e6 }')" \
    "$(sed -nE 's/.*"allocated": ([0-9]+).*/\1/p' "$work/out/memory.jsonl" |
      sort -n | tail -n 1 | awk '{ printf "%.1f", $1 / 1048576 }')" | tee -a "$work/rows" >&2
}

measure_small() {
  measure "one rank" 1 "${dense[@]}"
  for n in $ranks; do
    measure "data, \`--zero 1\`" "$n" "${dense[@]}" --zero 1
    measure "\`--tensor $n\`" "$n" "${dense[@]}" --tensor "$n"
    measure "\`--context $n\`" "$n" "${dense[@]}" --context "$n"
    for kind in ring ulysses; do
      measure "\`--context $n --context-kind $kind\`" "$n" "${dense[@]}" --context "$n" \
        --context-kind $kind
    done
    measure "\`--pipeline $n\`" "$n" "${dense[@]}" --pipeline "$n"
    if ((n == 2)); then
      for flag in tensor context; do
        measure "\`--$flag 2 --no-overlap\`" 2 "${dense[@]}" "--$flag" 2 --no-overlap
      done
    fi
    if ((n == 8)); then
      measure "\`--tensor 2 --context 2 --pipeline 2\`" 8 "${dense[@]}" --tensor 2 --context 2 \
        --pipeline 2
    fi
  done
  measure "one rank" 1 "${mixture[@]}"
  for n in $ranks; do
    measure "\`--expert $n --zero 1\`" "$n" "${mixture[@]}" --expert "$n" --zero 1
  done
}

# Measures the dense model with 8 sequences for each rank.
measure_weak() {
  measure "one rank" 1 "${dense[@]}"
  for n in $ranks; do
    batch=$((8 * n))
    measure "data, \`--zero 1\`" "$n" "${dense[@]}" --zero 1
    measure "data, \`--zero 3\`" "$n" "${dense[@]}" --zero 3
    measure "\`--pipeline $n\`" "$n" "${dense[@]}" --pipeline "$n"
  done
  batch=8
}

# plan GROUP CASE RANKS ARGUMENTS...: adds a row "plan|GROUP|CASE|RANKS|ITEMS|SECONDS" for a planned
# step. ITEMS is its number of tokens or images, SECONDS its time.
plan() {
  local group=$1 case=$2 n=$3
  shift 3
  "$(dirname "$program")/shale" plan "$@" --ranks "$n" --threads 1 --json | tail -1 |
    awk -v row="plan|$group|$case|$n" '
      function of(key,   at) {
        at = match($0, "\"" key "\": [0-9.e+-]+") + length(key) + 4
        return substr($0, at, RSTART + RLENGTH - at)
      }
      { printf "%s|%s|%s\n", row, of("items"), of("step_s") }' | tee -a "$work/rows" >&2
}

# Plans a model of 1.3B parameters on H100s: with the batch of one GPU on all GPUs (strong scaling),
# and with that batch on each GPU (weak scaling). Also plans ViT-L/16 on one and on four cards.
measure_planned() {
  local n kind card along
  for kind in strong weak; do
    plan $kind "one GPU" 1 "${big[@]}" --global-batch 64
    for n in $ranks; do
      batch=64
      [[ $kind == strong ]] || batch=$((64 * n))
      for along in "--zero 1" "--zero 3" "--tensor $n" "--pipeline $n"; do
        # shellcheck disable=SC2086 # options are words
        plan $kind "\`$along\`" "$n" "${big[@]}" $along --global-batch $batch
      done
    done
  done
  for card in a100 h100 rtx4090; do
    for n in 1 4; do
      plan vit $card "$n" image --recipe vit-l16 --data shapes --cluster $card
    done
  done
}

# step GROUP CASE RANKS FLAGS...: adds a row "step|GROUP|CASE|RANKS|MS|PLANNED MS" for ranks that
# share two cores evenly. MS is the median step of a run. For pipelines, PLANNED MS is the step
# planned with measured kernels.
step() {
  local group=$1 case=$2 n=$3 planned=''
  shift 3
  local flags=("$@" --threads $((2 / n)) --dtype fp32)
  rm -rf "$work/out"
  mpirun -np "$n" --bind-to none "$program" --data "$work/text.txt" --out "$work/out" "${flags[@]}" \
    --steps $((skipped + steps)) --no-save --quiet >"$work/log" 2>&1 ||
    { tail -n 20 "$work/log" >&2; exit 1; }
  if [[ $group == pipeline ]]; then
    planned=$("$(dirname "$program")/shale" plan --measure --json --ranks "$n" "${flags[@]}" \
      --cluster "$root/deploy/clusters/cpu_host.json" | tail -1 |
      sed -nE 's/.*"step_s": *([0-9.e-]+).*/\1/p' | awk '{ printf "%.1f", 1000 * $1 }')
  fi
  printf 'step|%s|%s|%d|%s|%s\n' "$group" "$case" "$n" \
    "$(column step_ms | sort -n | awk '{ ms[NR] = $1 } END { printf "%.1f", ms[int((NR + 1) / 2)] }')" \
    "$planned" | tee -a "$work/rows" >&2
}

# processor_step GROUP CASE RANKS FLAGS...: adds a "step" row with the processor time of a step,
# summed over all ranks, of one thread each.
processor_step() {
  local group=$1 case=$2 n=$3 later
  shift 3
  local run=(mpirun -np "$n" --oversubscribe --bind-to none "$program" --data "$work/text.txt"
    --out "$work/out" --threads 1 --dtype fp32 --no-save --quiet "$@")
  later=$(later_seconds $((1 + steps)) "${run[@]}")
  awk -v group="$group" -v case="$case" -v n="$n" -v s="$later" -v steps="$steps" \
    'BEGIN { printf "step|%s|%s|%d|%.1f|\n", group, case, n, 1000 * s / steps }' |
    tee -a "$work/rows" >&2
}

# Compares two ranks of one thread with one rank of two threads, on the same two cores.
measure_two_cores() {
  local gpt2=(--model gpt2-124m --vocab 50304 --seq-len 256 --micro-batch 4) kind
  step layers "one rank" 1 "${gpt2[@]}" --global-batch 8
  step layers "data" 2 "${gpt2[@]}" --global-batch 8
  step layers "\`--tensor 2\`" 2 "${gpt2[@]}" --global-batch 8 --tensor 2
  step layers "one rank, \`--tensor 4\`" 1 "${gpt2[@]}" --global-batch 8 --tensor 4
  step pipeline "data" 2 "${gpt2[@]}" --global-batch 32
  step pipeline "\`--pipeline 2\`, 1f1b" 2 "${gpt2[@]}" --global-batch 32 --pipeline 2
  step pipeline "\`--pipeline 2\`, interleaved, 2 chunks" 2 "${gpt2[@]}" --global-batch 32 \
    --pipeline 2 --pipeline-schedule interleaved --pipeline-chunks 2
  step pipeline "\`--pipeline 2\`, zb-h1" 2 "${gpt2[@]}" --global-batch 32 --pipeline 2 \
    --pipeline-schedule zb-h1
  local long=(--model nano --seq-len 4096 --micro-batch 1 --global-batch 2)
  step tokens "one rank" 1 "${long[@]}"
  for kind in gather ring ulysses; do
    step tokens "\`--context 2 --context-kind $kind\`" 2 "${long[@]}" --context 2 --context-kind $kind
  done
  local experts=(--model moe-nano --layers 4 --width 768 --heads 12 --kv-heads 12 --experts 8
    --active-experts 2 --seq-len 256 --micro-batch 4 --global-batch 16)
  step experts "data" 2 "${experts[@]}"
  step experts "\`--expert 2\`" 2 "${experts[@]}" --expert 2
  processor_step eight "one rank" 1 "${gpt2[@]}" --global-batch 8
  processor_step eight "\`--tensor 2 --context 2 --pipeline 2\`" 8 "${gpt2[@]}" --global-batch 8 \
    --tensor 2 --context 2 --pipeline 2
}

if [[ -n ${ROWS:-} ]]; then
  cp "$ROWS" "$work/rows"
else
  for i in $(seq 20000); do echo "line $i of a text that is long enough"; done >"$work/text.txt"
  for part in ${PART:-small weak two_cores planned}; do "measure_$part"; done
fi
if [[ -n ${ROWS_ONLY:-} ]]; then cp "$work/rows" "$ROWS_ONLY"; exit 0; fi

# table FROM TO: formats lines FROM to TO of the rows, relative to the processor time of the first
# line.
table() {
  cat <<'END'

| parallelism | ranks | tokens/s | relative to one rank | processor time per token, µs | relative to one rank | in flight | waits | bubble | sent per rank and step, MB | peak memory of a rank, MiB |
|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|
END
  sed -n "$1,$2p" "$work/rows" | awk -F'|' '
    NR == 1 { speed = $3; cpu = $4 }
    { printf "| %s | %d | %d | %.2f | %.0f | %.2f | %d%% | %d%% | %s | %.1f | %.1f |\n", $1, $2, $3, $3 / speed,
        $4, $4 / cpu, $6, $5, ($7 > 0 ? sprintf("%.0f%%", 100 * $7 / $8) : ""), $9, $10 }'
}

# steps_table GROUP: formats the rows of a group, relative to the speed of the first row.
steps_table() {
  sed -n "s/^step|$1|//p" "$work/rows" | awk -F'|' '
    NR == 1 { base = $3; plan = $4 }
    { printf "| %s | %d x %d | %.0f | %.2f |%s\n", $1, $2, 2 / $2, $3, base / $3,
        ($4 > 0 ? sprintf(" %.2f | %.2f |", plan / $4, base / $3 / (plan / $4)) : "") }'
}

# plan_table GROUP: formats the planned rows of a group, relative to the first row.
plan_table() {
  sed -n "s/^plan|$1|//p" "$work/rows" | awk -F'|' '
    NR == 1 { speed = $3 / $4 }
    { printf "| %s | %d | %.0f | %.2f |\n", $1, $2, $3 / $4, $3 / $4 / speed }'
}

# Line numbers of the first row of each table.
read -r _ second third < <(grep -n '^one rank' "$work/rows" | cut -d: -f1 | tr '\n' ' ')
{
  cat <<END
# Parallelism

Made by \`bench/parallelism.sh\` on $(date +%F): $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1), $(nproc) cores.
This page has the cost of each axis of [parallelism](../../docs/explanation/parallelism.md) on the CPUs of one
machine, measured with small models. It is for everyone who chooses a layout. Models train in f32, with one
thread per rank, 8 sequences of 256 tokens per step, and one sequence per micro-batch.

- **Tokens/s** are those of the median step. On $(nproc) cores, any number of ranks reaches at most $(nproc)
  times the tokens/s of one rank. So the cost of more ranks is visible in the **processor time** per token. It
  is the sum over all ranks, without the first step. Ranks that wait use no processor time.
- **In flight** is the share of time in which a collective or message of the axis was in flight, as the median
  over ranks. In rows without an axis, it counts all collectives. **Waits** is the share of time in which a
  rank waited for such a collective or message; with more ranks than cores, it includes waits for a core. In
  shared memory, ranks use their own processor time to exchange data, so overlap gains nothing here: see the
  rows with \`--no-overlap\`. **Bubble** is the share of time in which rank 0 waited for other pipeline
  stages.
- **Sent** is the number of bytes that rank 0 would send with ring algorithms
  ([traffic.h](../../comm/traffic.h)).

## A dense model

The model has \`${dense[*]}\`. Its matrices are so small that communication costs a larger
share of a step than in a model that needs parallelism.
END
  table 1 $((second - 1))
  cat <<END

## An MoE model

The model has \`${mixture[*]}\`.
END
  table "$second" $((third - 1))
  cat <<END

## Weak scaling

The dense model trains with 8 sequences for each rank, so the work grows with the number of ranks.
END
  table "$third" "$(($(grep -n '^step|' "$work/rows" | head -n 1 | cut -d: -f1) - 1))"
  cat <<END

## Two ranks compared with one on the same cores

Times are medians of $steps steps in f32. One rank has two threads; two ranks have one thread each. So a speed
of 1.00 is the best possible.

GPT-2 124M, 8 sequences of 256 tokens in micro-batches of four. With \`--tensor 4\`, one rank computes results
with the bits of four tensor ranks; the last row shows what that costs:

| | ranks x threads | ms per step | speed |
|---|---:|---:|---:|
$(steps_table layers)

The same model with 32 sequences. "Planned" is the speed that \`shale plan --measure\` predicts from measured
kernel times, including waits for other pipeline stages:

| | ranks x threads | ms per step | speed | planned | speed / planned |
|---|---:|---:|---:|---:|---:|
$(steps_table pipeline)

\`--model nano\` with two sequences of 4,096 tokens, one micro-batch each:

| | ranks x threads | ms per step | speed |
|---|---:|---:|---:|
$(steps_table tokens)

An MoE model of four layers of width 768 with 8 experts, two active per token; 16 sequences of 256 tokens in
micro-batches of four:

| | ranks x threads | ms per step | speed |
|---|---:|---:|---:|
$(steps_table experts)

Processor time of GPT-2 124M on eight ranks that share the two cores, 8 sequences in micro-batches of four:

| | ranks x threads | processor time per step, ms | relative to one rank |
|---|---:|---:|---:|
$(sed -n "s/^step|eight|//p" "$work/rows" | awk -F'|' '
    NR == 1 { base = $3 }
    { printf "| %s | %d x 1 | %.0f | %.2f |\n", $1, $2, $3, $3 / base }')

## Planned on GPUs

These speeds were planned, not measured. \`shale plan ${big[*]}\` with the options in the table planned
them for the GPUs of a node. The first table has 64 sequences per step (strong scaling):

| parallelism | GPUs | tokens/s | relative to one GPU |
|---|---:|---:|---:|
$(plan_table strong)

The second table has 64 sequences per step for each GPU (weak scaling):

| parallelism | GPUs | tokens/s | relative to one GPU |
|---|---:|---:|---:|
$(plan_table weak)

\`shale plan image --recipe vit-l16 --data shapes\` plans ViT-L/16 for 300 epochs of ImageNet-1k, which are
384 million images in steps of 4,096. The times assume that no step waits for data:

| GPU | number of GPUs | images/s | days | relative to one GPU |
|---|---:|---:|---:|---:|
$(sed -n "s/^plan|vit|//p" "$work/rows" | awk -F'|' '
    $2 == 1 { one = $3 / $4 }
    { rate = $3 / $4; printf "| %s | %d | %.0f | %.1f | %.2f |\n", $1, $2, rate, 384e6 / rate / 86400, rate / one }')
END
} >"$page"
cat "$page"
