#!/usr/bin/env bash
# Runs all kernel tests and benchmarks on this machine's GPU and writes one page of results:
#
#   bench/run_gpu.sh [--build] [BIN_DIR] [OUT_DIR]
#
#   --build   builds the kernels, their tests and bench_kernels into build/gpu first, which takes
#             nvcc, CMake and a compiler, and no other library (SHALE_KERNELS_ONLY)
#   BIN_DIR   where the programs are: a build folder, or a flat folder of copied programs. Needed
#             are test_kernels and bench_kernels; bench_report, bench_train, train_lm and peers/
#             (the Python scripts) are used where they are found. Default: build/gpu, else
#             build/release.
#   OUT_DIR   for the page (gpu.md), the rows and the logs; default BIN_DIR/gpu_results
#
# What it does, a step after the other: `tests`, the kernel tests on the GPU; `tests_dependent`, the
# same with dependent launches (docs/dependent_launch.md), which want compute capability 9.0;
# `memcheck`, `initcheck` and `synccheck`, the same under compute-sanitizer, where that is installed;
# `bench_kernels`; `step_124m` and `step_1558m`, training steps of 131072 tokens; `step_124m_graph`,
# `step_124m_dependent` and `step_124m_both`, the first of them with --cuda-graph, with
# --dependent-launch and with both; `breakdown`, where their time goes;
# `peer_kernels`, `peer_124m` and `peer_1558m`, PyTorch's kernels and steps, where python3 has it;
# `train` and `train_graph`, a short training run, without and with --cuda-graph. The page begins with
# the figures that matter, ours beside the fastest rival's. Each has a time limit of LIMIT seconds
# (default 900), and the next goes on if one fails. Ends with 0 if all that could run succeeded, 1 if
# a step failed, 69 without a GPU.
#
# In the environment: ONLY, names of the steps to run, and no others; MIN_TIME, seconds per kernel
# (default 0.3); TRAIN_FLAGS, of train_lm; PYTHON, another python3. DEVICE=emu tries the whole script
# at small sizes where there is no GPU; its times mean nothing.
set -uo pipefail

script_dir=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$script_dir/.." && pwd)
limit=${LIMIT:-900}
device=${DEVICE:-cuda}
python=${PYTHON:-python3}
if [[ $device == cuda ]]; then
  min_time=${MIN_TIME:-0.3}
  read -ra train_flags <<<"${TRAIN_FLAGS:---model gpt2-124m --steps 30 --seq-len 1024 --micro-batch 16}"
  peer_flags=()
  step_flags=(--dtype bf16 --seq-len 1024 --global-batch 128 --steps 10)
  step_124m=("${step_flags[@]}" --model gpt2-124m --micro-batch 32)
  step_1558m=("${step_flags[@]}" --model gpt2-1558m --micro-batch 16)
  breakdown=(--dtype bf16 --seq-len 1024 --model gpt2-124m --micro-batch 32 --steps 3)
  gpt2_flags=(--seq-len 1024 --global-batch 128)
  gpt2_124m=("${gpt2_flags[@]}" --model gpt2-124m --micro-batch 32)
  gpt2_1558m=("${gpt2_flags[@]}" --model gpt2-1558m --micro-batch 16 --modes compile --steps 10)
else
  min_time=${MIN_TIME:-0.001}
  tiny="--layers 1 --width 32 --heads 2"
  read -ra train_flags <<<"${TRAIN_FLAGS:---model nano $tiny --steps 2 --seq-len 16 --micro-batch 2}"
  peer_flags=(--device cpu --tiny)
  step_flags=(--model nano --layers 1 --seq-len 16 --micro-batch 1 --steps 1 --warmup 2)
  step_124m=("${step_flags[@]}" --global-batch 2)
  step_1558m=("${step_flags[@]}" --dtype bf16) breakdown=("${step_flags[@]}")
  read -ra gpt2_flags <<<"--device cpu $tiny --vocab 64 --seq-len 16 --micro-batch 2 --steps 2 --warmup 1"
  gpt2_124m=("${gpt2_flags[@]}" --global-batch 4)
  gpt2_1558m=("${gpt2_flags[@]}" --modes eager)
fi

usage() { sed -n '2,/^set /p' "${BASH_SOURCE[0]}" | sed -n 's/^# \{0,1\}//p'; }

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

capability=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | head -n 1)
if $with_build; then
  # For this machine's GPU alone, if it can be asked: half the time of a build for all.
  architectures=()
  if [[ $capability =~ ^[0-9]+[.][0-9]+$ ]]; then
    architectures=("-DSHALE_CUDA_ARCHITECTURES=${capability/./}-real")
  fi
  cmake -S "$root" -B "$root/build/gpu" -DSHALE_KERNELS_ONLY=ON -DSHALE_CUDA=ON \
    "${architectures[@]}" &&
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
if [[ -z ${ONLY:-} ]]; then rm -rf "$out/rows" "$out/logs"; fi  # else rows of other steps stay
mkdir -p "$out/rows" "$out/logs" || exit 74
page=$out/gpu.md
results=()
failed=0

# wanted NAME: whether this step is one of ONLY.
wanted() { [[ -z ${ONLY:-} || " $ONLY " == *" $1 "* ]]; }

# step NAME COMMAND...: runs it into logs/NAME.log and notes how it ended.
step() {
  local name=$1 start=$SECONDS status verdict
  shift
  if ! wanted "$name"; then return; fi
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
  results+=("| $name | $verdict | $((SECONDS - start)) s | $(grep -v '^[[:space:]]*$' \
    "$out/logs/$name.log" | tail -n 1 | tr -d '|' | cut -c1-100) |")
}
skip() {
  if ! wanted "$1"; then return; fi
  echo "==== $1: not run, $2"
  results+=("| $1 | not run | | $2 |")
}

for name in ${ONLY:-}; do
  case $name in
    tests | tests_dependent | memcheck | initcheck | synccheck | bench_kernels | peer_kernels) ;;
    step_124m | step_124m_graph | step_124m_dependent | step_124m_both) ;;
    step_1558m | breakdown | peer_124m | peer_1558m | train | train_graph) ;;
    *) echo "run_gpu.sh: ONLY: there is no step '$name'" >&2; exit 64 ;;
  esac
done

export SHALE_TEST_GPU=$device
step tests "$test_kernels"
no_dependent=""
if [[ $device == cuda && $capability != 9.0 ]]; then
  no_dependent="dependent launches want compute capability 9.0, this is ${capability:-unknown}"
fi
if [[ $device != cuda ]]; then
  skip tests_dependent "on the emulator tests has them"
elif [[ -n $no_dependent ]]; then
  skip tests_dependent "$no_dependent"
else
  SHALE_TEST_DEPENDENT_LAUNCH=1 step tests_dependent "$test_kernels"
fi
for tool in memcheck initcheck synccheck; do
  if [[ $device != cuda ]]; then
    skip "$tool" "it checks what runs on a GPU"
  elif ! command -v compute-sanitizer >/dev/null; then
    skip "$tool" "there is no compute-sanitizer"
  else
    # New memory stays as it is, or nothing would be uninitialised.
    SHALE_TEST_POISON=0 step "$tool" \
      compute-sanitizer --tool "$tool" --error-exitcode 1 "$test_kernels"
  fi
done

step bench_kernels "$bench_kernels" --device "$device" --min-time "$min_time" \
  --json "$out/rows/kernels.json"
bench_train=$(program bench_train)
# train_steps NAME FLAGS...: bench_train as the step NAME.
train_steps() {
  if [[ -z $bench_train ]]; then
    skip "$1" "there is no bench_train"
  else
    step "$1" "$bench_train" --device "$device" "${@:2}" --json "$out/rows/$1.json"
  fi
}
train_steps step_124m "${step_124m[@]}"
train_steps step_124m_graph "${step_124m[@]}" --cuda-graph
if [[ -n $no_dependent ]]; then
  for name in step_124m_dependent step_124m_both; do skip "$name" "$no_dependent"; done
else
  train_steps step_124m_dependent "${step_124m[@]}" --dependent-launch
  train_steps step_124m_both "${step_124m[@]}" --cuda-graph --dependent-launch
fi
train_steps step_1558m "${step_1558m[@]}"
train_steps breakdown --breakdown "${breakdown[@]}"

if [[ ! -d $peers ]]; then
  no_peers="there is no folder peers"
elif ! "$python" -c 'import torch' 2>/dev/null; then
  no_peers="$python has no torch"
else
  no_peers=""
fi
if [[ -z $no_peers ]]; then
  step peer_kernels "$python" "$peers/kernels_gpu.py" --min-time "$min_time" "${peer_flags[@]}" \
    --json "$out/rows/peer_kernels.json"
  step peer_124m "$python" "$peers/gpt2_gpu.py" "${gpt2_124m[@]}" --json "$out/rows/peer_124m.json"
  step peer_1558m "$python" "$peers/gpt2_gpu.py" "${gpt2_1558m[@]}" \
    --json "$out/rows/peer_1558m.json"
else
  for name in peer_kernels peer_124m peer_1558m; do skip "$name" "$no_peers"; done
fi

train_lm=$(program train_lm)
if [[ -z $train_lm ]]; then
  skip train "there is no train_lm"
  skip train_graph "there is no train_lm"
elif wanted train || wanted train_graph; then
  # Any few megabytes of text: headers, or what comes with Python.
  find /usr/include /usr/lib/python3* /usr/local/cuda/include -type f \
    \( -name '*.h' -o -name '*.py' \) -print0 2>/dev/null | sort -z | head -z -n 1000 |
    xargs -0 cat >"$out/text.txt"
  train_flags+=(--device "$device" --data "$out/text.txt" --no-save)
  step train "$train_lm" "${train_flags[@]}" --out "$out/train_$$"
  step train_graph "$train_lm" "${train_flags[@]}" --cuda-graph --out "$out/train_graph_$$"
  rm -f "$out/text.txt"
fi

{
  echo "# GPU results"
  echo
  if [[ $device == cuda ]]; then
    gpu=$(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader 2>/dev/null | head -n 1)
  else
    gpu="the emulated GPU: its times mean nothing"
  fi
  echo "$(date -u +%Y-%m-%dT%H:%M:%SZ), ${gpu:-unknown GPU}, commit $(git -C "$root" rev-parse \
    --short HEAD 2>/dev/null || echo unknown)"
  echo
  echo "| run | result | time | last line |"
  echo "|---|---|---|---|"
  printf '%s\n' "${results[@]}"
  bench_report=$(program bench_report)
  if [[ -n $bench_report ]] && compgen -G "$out/rows/*.json" >/dev/null &&
    "$bench_report" --rows "$out/rows" >"$out/logs/report.md" 2>"$out/logs/report.log"; then
    echo
    cat "$out/logs/report.md"
  else
    if [[ -s $out/logs/report.log ]]; then printf '\nbench_report: %s\n' "$(cat "$out/logs/report.log")"; fi
    for log in bench_kernels step_124m step_124m_graph step_124m_dependent step_124m_both \
      step_1558m breakdown peer_kernels peer_124m peer_1558m; do
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
