#!/usr/bin/env bash
# Runs all kernel tests and benchmarks on this machine's GPU and writes one page of results:
#
#   bench/run_gpu.sh [--build] [BIN_DIR] [OUT_DIR]
#
#   --build   builds the kernels, their tests and bench_kernels into build/gpu first, which takes
#             nvcc, CMake and a compiler, and no other library (SHALE_KERNELS_ONLY)
#   BIN_DIR   where the programs are: a build folder, or a flat folder of copied programs. Needed
#             are test_kernels and bench_kernels; bench_report, train_lm and peers/ (the Python
#             scripts) are used where they are found. Default: build/gpu, else build/release.
#   OUT_DIR   for the page (gpu.md), the rows and the logs; default BIN_DIR/gpu_results
#
# What it does: the kernel tests on the GPU; the same under compute-sanitizer's memcheck, initcheck
# and synccheck, where that is installed; bench_kernels; PyTorch's kernels and its GPT-2 step, where
# python3 has it; a short training run. Each has a time limit of LIMIT seconds (default 900), and
# the next goes on if one fails. Ends with 0 if all that could run succeeded, 69 without a GPU.
# MIN_TIME (seconds per kernel, default 0.3) shortens it. DEVICE=emu tries the script where there is
# no GPU.
set -uo pipefail

script_dir=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$script_dir/.." && pwd)
limit=${LIMIT:-900}
min_time=${MIN_TIME:-0.3}
device=${DEVICE:-cuda}

usage() { sed -n '2,20s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; }

with_build=false
places=()
for argument in "$@"; do
  case "$argument" in
    -h | --help) usage; exit 0 ;;
    --build) with_build=true ;;
    -*) echo "run_gpu.sh: unknown argument '$argument'" >&2; usage >&2; exit 64 ;;
    *) places+=("$argument") ;;
  esac
done

if $with_build; then
  cmake -S "$root" -B "$root/build/gpu" -DSHALE_KERNELS_ONLY=ON -DSHALE_CUDA=ON &&
    cmake --build "$root/build/gpu" --parallel "$(nproc)" || exit 70
fi
bin_dir=${places[0]:-}
if [[ -z $bin_dir ]]; then
  bin_dir=$root/build/gpu
  if [[ ! -d $bin_dir ]]; then bin_dir=$root/build/release; fi
fi

# program NAME: its path, in a flat folder or a build folder; empty if it is not there.
program() {
  local folder
  for folder in "$bin_dir" "$bin_dir/bin" "$bin_dir/test"; do
    if [[ -f $folder/$1 && -x $folder/$1 ]]; then echo "$folder/$1"; return; fi
  done
}
test_kernels=$(program test_kernels)
bench_kernels=$(program bench_kernels)
if [[ -z $test_kernels || -z $bench_kernels ]]; then
  echo "run_gpu.sh: want test_kernels and bench_kernels in $bin_dir, its bin/ or its test/;" \
    "build first, or give --build" >&2
  exit 66
fi
peers=$bin_dir/peers
if [[ ! -d $peers ]]; then peers=$script_dir/peers; fi
if [[ -f $bin_dir/primitives.txt ]]; then export SHALE_TEST_FIXTURES=$bin_dir; fi

# One small kernel tells whether there is a GPU that these programs run on: 69 if not.
message=$("$bench_kernels" --device "$device" --filter '^fill/' --min-time 0.001 2>&1)
status=$?
if [[ $status -ne 0 ]]; then
  echo "run_gpu.sh: a first kernel failed: ${message##*error: }" >&2
  exit $status
fi

out=${places[1]:-$bin_dir/gpu_results}
mkdir -p "$out/rows" "$out/logs" || exit 74
page=$out/gpu.md
results=()
failed=0

# step NAME COMMAND...: runs it into logs/NAME.log and notes how it ended.
step() {
  local name=$1 start=$SECONDS status verdict
  shift
  echo "==== $name"
  timeout "$limit" "$@" >"$out/logs/$name.log" 2>&1
  status=$?
  case $status in
    0) verdict="passed" ;;
    124) verdict="FAILED: more than $limit s" ;;
    *) verdict="FAILED: exit code $status" ;;
  esac
  if [[ $status -ne 0 ]]; then
    failed=$((failed + 1))
    tail -n 20 "$out/logs/$name.log"
  fi
  results+=("| $name | $verdict | $((SECONDS - start)) s | $(tail -n 1 "$out/logs/$name.log" |
    tr -d '|' | cut -c1-100) |")
}
skip() {
  echo "==== $1: not run, $2"
  results+=("| $1 | not run | | $2 |")
}

export SHALE_TEST_GPU=$device
step tests "$test_kernels"
for tool in memcheck initcheck synccheck; do
  if ! command -v compute-sanitizer >/dev/null; then
    skip "$tool" "there is no compute-sanitizer"
  else
    # New memory stays as it is, or nothing would be uninitialised.
    SHALE_TEST_POISON=0 step "$tool" \
      compute-sanitizer --tool "$tool" --error-exitcode 1 "$test_kernels"
  fi
done

step bench_kernels "$bench_kernels" --device "$device" --min-time "$min_time" \
  --json "$out/rows/kernels.json"
if [[ -d $peers ]] && python3 -c 'import torch' 2>/dev/null; then
  step peer_kernels python3 "$peers/kernels_gpu.py" --min-time "$min_time" \
    --json "$out/rows/peer_kernels.json"
  step peer_gpt2 python3 "$peers/gpt2_gpu.py" --json "$out/rows/peer_gpt2.json"
else
  skip peers "python3 has no torch, or there is no folder peers"
fi

train_lm=$(program train_lm)
if [[ -n $train_lm ]]; then
  cat /usr/include/*.h >"$out/text.txt"
  step train "$train_lm" --device "$device" --model gpt2-124m --data "$out/text.txt" --steps 30 \
    --seq-len 1024 --micro-batch 16 --no-save --out "$out/train_$$"
else
  skip train "there is no train_lm"
fi

{
  echo "# GPU results"
  echo
  echo "$(date -u +%Y-%m-%dT%H:%M:%SZ), $(nvidia-smi --query-gpu=name,driver_version \
    --format=csv,noheader 2>/dev/null | head -n 1), commit $(git -C "$root" rev-parse --short HEAD \
    2>/dev/null || echo unknown)"
  echo
  echo "| run | result | time | last line |"
  echo "|---|---|---|---|"
  printf '%s\n' "${results[@]}"
  bench_report=$(program bench_report)
  if [[ -n $bench_report ]]; then
    echo
    "$bench_report" --rows "$out/rows"
  else
    for log in bench_kernels peer_kernels peer_gpt2; do
      if [[ -f $out/logs/$log.log ]]; then
        printf '\n## %s\n\n```\n' "$log"
        cat "$out/logs/$log.log"
        echo '```'
      fi
    done
  fi
} >"$page"
echo "wrote $page; $failed failed"
[[ $failed -eq 0 ]]
