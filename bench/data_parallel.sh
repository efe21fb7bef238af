#!/usr/bin/env bash
# Compares data parallelism in which one rank owns all parameters with DDP and ZeRO, on 2, 4 and 8
# ranks of this machine. Also compares DDP on two ranks with one rank:
#
#   bench/data_parallel.sh [BUILD_DIR]      (default build/release; it must be built)
#
# Writes bench/results/data_parallel.md and .svg, and takes some minutes. Times are meaningful only
# on an otherwise idle machine with as many cores as ranks. Variables:
#   PAGE     output file
#   RANKS    numbers of ranks; default "2 4 8"
#   COUNTED  flags of bench_data_parallel for the tables
#   TIMED    its flags for the times of one and two ranks; "none" omits the times
#   ROUNDS   rounds of these times; default 3
#   ROWS     rows of an earlier run, for the tables
#   ALONE    a command that runs the timed part and keeps the machine idle meanwhile
set -euo pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
program=${1:-$root/build/release}/bin/bench_data_parallel
[[ -x $program ]] || { echo "data_parallel.sh: $program is missing: build first" >&2; exit 66; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1

page=${PAGE:-$root/bench/results/data_parallel.md}
ranks=${RANKS:-2 4 8}
read -ra counted <<<"${COUNTED:---batch 16 --pixels 64 --seq-len 16 --steps 3}"
read -ra timed <<<"${TIMED:---batch 64 --pixels 64 --seq-len 64 --steps 5 --only DDP}"

# run RANKS FILE FLAGS...: runs bench_data_parallel; its rows go to $work/FILE.
run() {
  mpirun -np "$1" --oversubscribe --bind-to none "$program" --json "$work/$2" "${@:3}" >&2
}

# Runs a process with its share of the batch alone, then together with an independent process.
run_shares() {
  run 1 alone "$@"
  run 1 beside "$@" & local other=$!
  run 1 other "$@"
  wait "$other"
}

# Runs one rank with the whole batch, two ranks, and two independent processes for comparison.
run_timed() {
  for ((round = 0; round < ${ROUNDS:-3}; ++round)); do
    run 1 whole "${timed[@]}"
    run_shares "${timed[@]}" --batch "$share"
    run 2 two "${timed[@]}"
  done
}
export -f run run_timed run_shares
export program work
batch=$(sed -n 's/.*--batch \([0-9]*\).*/\1/p' <<<"${timed[*]}")
export share=$((${batch:-16} / 2))

if [[ ${timed[0]} == none ]]; then
  :
elif [[ -n ${ALONE:-} ]]; then
  $ALONE bash -euo pipefail -c "timed=(${timed[*]}); run_timed"
else
  run_timed
fi
if [[ -n ${ROWS:-} ]]; then
  cp "$ROWS" "$work/rows"
else
  for n in $ranks; do run "$n" rows "${counted[@]}"; done
fi
awk -f "$root/bench/data_parallel.awk" "$work/rows" >"${page%.md}.svg"

# Awk function: value of a key in a line of JSON.
value='function value(key, rest) {
  if (!match($0, "\"" key "\":\"?")) return ""
  rest = substr($0, RSTART + RLENGTH)
  match(rest, /^[^",}]*/)
  return substr(rest, 1, RLENGTH)
}'

two_ranks() {
  cat <<END

## Two ranks compared with one

Steps of DDP with \`${timed[*]}\`, in ms, medians of ${ROUNDS:-3}
alternating rounds. "One rank, half" is one rank of one thread with ${share} samples and no other program. "Two ranks"
have ${share} samples each; **scaling** is the first time divided by theirs. "Two processes" are two
independent runs of "one rank, half" at the same time; **bound** is the first time divided by theirs, the
scaling that these cores allow. "One rank, all" has all samples; the last column is half of its time divided by
the time of two ranks. It also counts the optimizer step, which every rank of DDP repeats.

| model | one rank, half | two ranks | scaling | two processes | bound | one rank, all | half of it / two ranks |
|---|---:|---:|---:|---:|---:|---:|---:|
END
  awk "$value"'{
    m = value("model")
    if (!(m in seen)) { seen[m]; order[++models] = m }
    run = FILENAME
    sub(/.*\//, "", run)
    ms[run, m, ++count[run, m]] = value("step_ms")
  }
  function median(run, m,    n, i, j, t) {
    n = count[run, m]
    for (i = 2; i <= n; i++)
      for (j = i; j > 1 && ms[run, m, j - 1] + 0 > ms[run, m, j] + 0; j--) {
        t = ms[run, m, j]; ms[run, m, j] = ms[run, m, j - 1]; ms[run, m, j - 1] = t
      }
    return (ms[run, m, int((n + 1) / 2)] + ms[run, m, int((n + 2) / 2)]) / 2
  }
  END {
    for (i = 1; i <= models; i++) {
      m = order[i]
      alone = median("alone", m); two = median("two", m); whole = median("whole", m)
      both = (median("beside", m) + median("other", m)) / 2
      printf "| %s | %.0f | %.0f | %.2f | %.0f | %.2f | %.0f | %.2f |\n", m, alone, two, alone / two,
        both, alone / both, whole, whole / (2 * two)
    }
  }' "$work/whole" "$work/two" "$work/alone" "$work/beside" "$work/other"
}

{
  cat <<END
# Data parallelism with an owner

Made by \`bench/data_parallel.sh\` on $(date +%F): $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1), $(nproc) cores.
This page compares data parallelism with an owner to DDP and ZeRO. It is for everyone who asks why Shale has no
counterpart of \`torch.nn.DataParallel\`. Rank 0, the owner, has the parameters and the optimizer. In every step
it scatters the batch, sends the parameters, receives the gradients and runs the optimizer alone
([owner_step.h](../support/owner_step.h)). f32, AdamW, ranks of one thread;
\`${counted[*]}\`. The benchmark fails unless all methods have the same losses.
To run it on GPUs, with one rank per GPU, use
\`mpirun -np N --bind-to none bench_data_parallel --device cuda\`; it has not been measured on GPUs yet.

- **Bytes** are MiB per step. The owner has one link to each other rank, counted in both directions; DDP and
  ZeRO use a ring, counted as in [traffic.h](../../comm/traffic.h).
- **Memory** is the peak in use, in MiB, on the device of rank 0 and of the other rank with the most.
- **Processor time** is in ms per step, of rank 0 and of the other rank with the most. Ranks that wait use none.
  The model's own work is the same for all methods. The ranks shared cores (load at the end: $(cut -d' ' -f1 /proc/loadavg)), so
  differences below 10% mean little, and wall time is not shown.

![Bytes and memory of rank 0 by ranks](data_parallel.svg)

| model | ranks | method | rank 0 sends and receives | another rank | over one link | memory of rank 0 | of another rank | processor time of rank 0 | of another rank |
|---|---:|---|---:|---:|---:|---:|---:|---:|---:|
END
  sort -s -t: -k3,3 "$work/rows" | awk "$value"'{
    printf "| %s | %s | %s | %.1f | %.1f | %.1f | %.0f | %.0f | %.0f | %.0f |\n",
      value("model"), value("ranks"), value("way"), value("first_sent_mib") + value("first_received_mib"),
      value("other_sent_mib") + value("other_received_mib"), value("link_mib"),
      value("first_memory_mib"), value("other_memory_mib"), value("first_cpu_ms"), value("other_cpu_ms") }'
  [[ ! -s $work/whole ]] || two_ranks
} >"$page"
cat "$page"
