#!/usr/bin/env bash
# Measures everything that is possible without a GPU and writes one page of results:
#
#   bench/run_cpu.sh [BUILD_DIR]      (default build/release; it must be built)
#
# The page is bench/results/<date>-<cpu>.md; the rows are kept in BUILD_DIR/bench_rows. It takes
# about 28 minutes on two cores, and requires an idle machine. Variables, for shorter trials: STEPS
# (measured steps of a training run, default 15), MIN_TIME (seconds per kernel, default 0.3), MODEL
# (default gpt2-124m). PAGE is the output file. PEERS_JSON has rows of other programs, such as those
# of bench/peers/steps_cpu.py, which are added to the page.
set -euo pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
build=${1:-$root/build/release}
bin=$build/bin
rows=$build/bench_rows
steps=${STEPS:-15}
min_time=${MIN_TIME:-0.3}
model=${MODEL:-gpt2-124m}

for program in bench_kernels bench_train bench_report; do
  if [ ! -x "$bin/$program" ]; then
    echo "run_cpu.sh: $bin/$program is missing: build first, or name the build folder" >&2
    exit 66
  fi
done
cores=$(getconf _NPROCESSORS_ONLN)
load=$(cut -d' ' -f1 /proc/loadavg)
if awk -v load="$load" 'BEGIN { exit !(load > 0.5) }'; then
  echo "run_cpu.sh: the load is $load: something else is running, and numbers will be too low" >&2
fi

# Containers often run as root, which mpirun refuses by default.
if [ "$(id -u)" = 0 ]; then
  export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
fi
mpi() { mpirun -np "$1" --bind-to none "${@:2}"; }
# Comparing two ranks of one thread with one rank of two threads requires two cores.
threads=2
if [ "$cores" -lt 2 ]; then threads=1; fi

rm -rf "$rows"
mkdir -p "$rows"
train() { # arguments: name, ranks, threads, flags...
  echo "== bench_train $*"
  local launch=()
  if [ "$2" -gt 1 ]; then launch=(mpi "$2"); fi
  "${launch[@]}" "$bin/bench_train" --model "$model" --threads "$3" --steps "$steps" \
    --json "$rows/train_$1.json" "${@:4}"
}

train fp32 1 $threads --dtype fp32
train bf16 1 $threads --dtype bf16
# Runs on one and on two ranks alternate, twice, and the fastest of each counts. One rank may
# accumulate two micro-batches or compute all sequences in one, whichever is faster.
for round in 1 2; do
  train "fp32_ranks1_$round" 1 $threads --global-batch 8 --micro-batch 8
  train "fp32_ranks1_accumulate_$round" 1 $threads --global-batch 8
  for zero in 0 1 2 3; do
    train "fp32_ranks2_zero${zero}_$round" 2 1 --global-batch 8 --zero "$zero"
  done
done
train nano 1 $threads --model nano --micro-batch 8
for dtype in fp32 bf16; do # a round of --breakdown takes as long as seven steps
  echo "== bench_train --breakdown --dtype $dtype"
  "$bin/bench_train" --breakdown --model "$model" --dtype "$dtype" --threads $threads \
    --steps $(((steps + 2) / 3)) --json "$rows/breakdown_$dtype.json"
done

if [ -x "$bin/bench_collectives" ]; then
  echo "== bench_collectives"
  mpi 2 "$bin/bench_collectives" --json "$rows/collectives.json"
fi
echo "== bench_kernels"
"$bin/bench_kernels" --threads $threads --min-time "$min_time" --json "$rows/kernels.json"
if [ -n "${PEERS_JSON:-}" ]; then cp "$PEERS_JSON" "$rows/peers.json"; fi

commit=$(git -C "$root" rev-parse --short HEAD 2>/dev/null || echo unknown)
if ! git -C "$root" diff --quiet HEAD 2>/dev/null; then commit="$commit with local changes"; fi
cpu=$(sed -n 's/^model name[^:]*: *//p' /proc/cpuinfo | head -1 | tr 'A-Z' 'a-z' |
  sed 's/(r)\|(tm)//g; s/[^a-z0-9]\{1,\}/-/g; s/^-\|-$//g')
page=${PAGE:-$root/bench/results/$(date -u +%Y-%m-%d)-${cpu:-cpu}.md}
"$bin/bench_report" --rows "$rows" --out "$page" --commit "$commit" \
  --mpi "$(mpirun --version 2>/dev/null | head -1)"
echo "wrote $page"
