#!/usr/bin/env bash
# Runs all kernel tests and benchmarks on this machine's GPU and writes one page of results:
#
#   bench/run_gpu.sh [--build] [BIN_DIR] [OUT_DIR]
#
#   --build   first builds the kernels, their tests and bench_kernels into build/gpu, which requires
#             nvcc, CMake and a compiler, but no other library (SHALE_KERNELS_ONLY)
#   BIN_DIR   a build folder, or a flat folder of copied programs. Required are test_kernels and
#             bench_kernels; bench_report, bench_train, bench_data_parallel, train_lm and peers/ (the
#             Python scripts) are optional. Default: build/gpu, else build/release.
#   OUT_DIR   for the page (gpu.md), the rows and the logs; default BIN_DIR/gpu_results
#
# Steps, in order of importance:
#
#   correctness  `doctor`, a check of the machine; `tests`, the kernel tests on the GPU; `tune`, the
#                fastest GEMMs for kernels/gemm_table.inc, for a later build; `train`, a short run,
#                which first checks the kernels and whose losses must decrease; `checked`, the
#                result of this check; `train_graph`, the same with CUDA graphs; `tests_dependent`,
#                the tests with dependent launch (docs/contributing/emulator.md), which requires
#                compute capability 9.0
#   figures      `figures`, the main kernels; `peer_figures`, the same of other libraries, if python3
#                has PyTorch (and optionally FlashAttention, Liger-Kernel and more; the page lists
#                the missing ones);
#                `step_124m`, a training step of 131072 tokens, and `peer_124m`, PyTorch's;
#                `step_resnet50`, of 128 images, with cuDNN's convolutions, `step_resnet50_own` with
#                Shale's, `step_vit_b16`, and PyTorch's steps, `peer_resnet50` and `peer_vit_b16`
#   several GPUs `ncu`, counters of attention, if Nsight Compute is installed; `nccl`, two ranks with
#                NCCL's messages; `zero1`, a rank per GPU, with memory in the driver's figures;
#                `pipeline`, four stages; `overlap` and `no_overlap`, a rank per GPU with reductions
#                during and after backward, under Nsight Systems if it is installed;
#                `data_parallel`, a comparison of DDP, ZeRO and data parallelism with an owner, a rank
#                per GPU; its table is in logs/data_parallel.log
#   the rest     `step_124m_graph`, `step_124m_dependent`, `step_124m_both` (with --cuda-graph, with
#                dependent launches, with both), `step_1558m`, `peer_1558m`, `breakdown` of a step,
#                `bench_kernels` (with cuDNN's convolutions), `own_convolutions` (with Shale's),
#                `peer_kernels`; `memcheck`, `initcheck` and `synccheck`, small cases
#                under compute-sanitizer, if it is installed
#
# The page begins with the main figures of Shale and of the fastest other library, and ends with the
# predictions (bench/predictions.json). Rows and the page are written after every step. BUDGET
# seconds (default 540) after its start the script starts no further step and interrupts the current
# one; the next call continues, and keeps earlier results. Exit code: 0 if all possible steps
# succeeded, 1 if a step failed, 75 if some are left, 69 without a GPU.
#
# Environment: ONLY, names of the only steps to run, even if they ran before; RETRY=1, repeat failed
# steps; MIN_TIME, seconds per kernel (default 0.3; a third of it in `figures`); TRAIN_FLAGS, for
# train_lm; PYTHON, another python3. DEVICE=emu tries the whole script at small sizes without a GPU;
# its times are meaningless.
set -uo pipefail

script_dir=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$script_dir/.." && pwd)
budget=${BUDGET:-540}
device=${DEVICE:-cuda}
python=${PYTHON:-python3}

# ---- Sizes of the runs ----

# Kernels of bench_kernels that are a GPU's main results; bench_report has the same list.
figures='^(attention_(fwd|bwd)/(hopper_)?causal/d(128/t8192|64/t1024|64/t8192)|gemm/(hopper_nt|square)/8192|gemm/((hopper|vendor)_)?ffn/.*/t8192)/bf16$'
if [[ $device == cuda ]]; then
  min_time=${MIN_TIME:-0.3} figures_min_time=${MIN_TIME:-0.1}
  read -ra train_flags <<<"${TRAIN_FLAGS:---model gpt2-124m --steps 30 --seq-len 1024 --micro-batch 16}"
  peer_flags=() peer_filter=""
  step_flags=(--dtype bf16 --seq-len 1024 --global-batch 128 --steps 10)
  step_124m=("${step_flags[@]}" --model gpt2-124m --micro-batch 32)
  step_1558m=("${step_flags[@]}" --model gpt2-1558m --micro-batch 16)
  breakdown=(--dtype bf16 --seq-len 1024 --model gpt2-124m --micro-batch 32 --steps 3)
  gpt2_flags=(--seq-len 1024 --global-batch 128)
  gpt2_124m=("${gpt2_flags[@]}" --model gpt2-124m --micro-batch 32)
  gpt2_1558m=("${gpt2_flags[@]}" --model gpt2-1558m --micro-batch 16 --modes compile,compile-cudnn --steps 10)
  images=(--dtype bf16 --pixels 224 --micro-batch 128 --steps 20)
  resnet50=("${images[@]}" --model resnet50) vit_b16=("${images[@]}" --model vit-b16)
  peer_images=(--micro-batch 128 --steps 20)
else
  figures='^(fill|attention_fwd/.*/t1024)/'
  min_time=${MIN_TIME:-0.001} figures_min_time=$min_time
  tiny="--layers 1 --width 32 --heads 2"
  read -ra train_flags <<<"${TRAIN_FLAGS:---model nano $tiny --steps 2 --seq-len 16 --micro-batch 2}"
  peer_flags=(--device cpu --tiny) peer_filter='^(copy|adamw|layer_norm_fwd|swiglu_fwd)/'
  step_flags=(--model nano --layers 1 --seq-len 16 --micro-batch 1 --steps 1 --warmup 2)
  step_124m=("${step_flags[@]}" --global-batch 2)
  step_1558m=("${step_flags[@]}" --dtype bf16) breakdown=("${step_flags[@]}")
  read -ra gpt2_flags <<<"--device cpu $tiny --vocab 64 --seq-len 16 --micro-batch 2 --steps 2 --warmup 1"
  gpt2_124m=("${gpt2_flags[@]}" --global-batch 4)
  gpt2_1558m=("${gpt2_flags[@]}" --modes eager)
  images=(--pixels 16 --micro-batch 1 --steps 1 --warmup 1)
  resnet50=("${images[@]}" --model resnet18-small) vit_b16=("${images[@]}" --model vit-nano)
  peer_images=(--device cpu --small --pixels 32 --micro-batch 1 --steps 1 --warmup 1 --modes eager)
fi

steps=(doctor tests tune train checked train_graph tests_dependent
       ncu nccl zero1 pipeline overlap no_overlap data_parallel
       figures peer_figures step_124m peer_124m
       step_resnet50 step_resnet50_own peer_resnet50 step_vit_b16 peer_vit_b16
       step_124m_graph step_124m_dependent step_124m_both step_1558m peer_1558m breakdown
       bench_kernels own_convolutions peer_kernels memcheck initcheck synccheck)
# Selects test cases for kernels on any device, and excludes those for the emulator.
device_cases='~[emulator]'
# Selects small test cases of every kind of kernel, for tools that make them a hundred times slower.
small_cases='[#copy],[#dropout],[#elementwise],[#embedding],[#loss_scale],[#reduce],[#rms_norm],[#tree_sum]'

# ---- Arguments ----

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
for name in ${ONLY:-}; do
  if [[ " ${steps[*]} " != *" $name "* ]]; then
    echo "run_gpu.sh: ONLY: there is no step '$name'" >&2
    exit 64
  fi
done

capability=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | head -n 1)
if $with_build; then
  # If the GPU's capability is known, builds only for this machine's GPU, in half the time of a
  # build for all GPUs.
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

# program NAME: prints the path of a program in a flat folder or a build folder; nothing if it is
# missing.
program() {
  local folder
  for folder in "$bin_dir" "$bin_dir/bin" "$bin_dir/test"; do
    if [[ -f $folder/$1 && -x $folder/$1 ]]; then echo "$folder/$1"; return; fi
  done
}
test_kernels=$(program test_kernels) bench_kernels=$(program bench_kernels)
bench_train=$(program bench_train) train_lm=$(program train_lm) bench_report=$(program bench_report)
bench_data_parallel=$(program bench_data_parallel) shale=$(program shale)
if [[ -z $test_kernels || -z $bench_kernels ]]; then
  echo "run_gpu.sh: expected test_kernels and bench_kernels in $bin_dir, its bin/ or its test/;" \
    "build first, or give --build" >&2
  exit 66
fi
peers=$bin_dir/peers
if [[ ! -d $peers ]]; then peers=$script_dir/peers; fi
predictions=$bin_dir/predictions.json
if [[ ! -f $predictions ]]; then predictions=$script_dir/predictions.json; fi
if [[ -f $bin_dir/primitives.txt ]]; then export SHALE_TEST_FIXTURES=$bin_dir; fi

# Runs a small kernel to find out whether the programs can use the GPU. Exits with 69 if they
# cannot.
message=$("$bench_kernels" --device "$device" --filter '^fill/' --min-time 0.001 2>&1)
status=$?
if [[ $status -ne 0 ]]; then
  echo "run_gpu.sh: a first kernel failed: ${message##*error: }" >&2
  exit $status
fi

out=${places[1]:-$bin_dir/gpu_results}
mkdir -p "$out/rows" "$out/logs" "$out/steps" || exit 74
if [[ $device == cuda ]]; then cp "$predictions" "$out/rows/predictions.json"; fi
page=$out/gpu.md

# ---- Steps of the script ----

# Each step writes its line of the page's table to steps/NAME, where the next call of the script
# finds it.
left() { echo $((budget - SECONDS)); }

# due NAME: succeeds if the step should run now.
due() {
  local verdict=$out/steps/$1
  if [[ -n ${ONLY:-} ]]; then
    if [[ " $ONLY " != *" $1 "* ]]; then return 1; fi
  elif [[ -e $verdict ]]; then
    if [[ ${RETRY:-} != 1 ]] || ! grep -q FAILED "$verdict"; then return 1; fi
  fi
  rm -f "$verdict"
  [[ $(left) -ge 10 ]]
}

# step NAME COMMAND...: runs the command with output to logs/NAME.log and records its result.
step() {
  local name=$1 start=$SECONDS status verdict
  shift
  echo "==== $name"
  timeout "$(left)" "$@" >"$out/logs/$name.log" 2>&1
  status=$?
  case $status in
    0) verdict="passed" ;;
    124) echo "cut after $((SECONDS - start)) s; the next call begins it anew"; return ;;
    *) verdict="FAILED: exit code $status"; tail -n 20 "$out/logs/$name.log" ;;
  esac
  echo "| $name | $verdict | $((SECONDS - start)) s | $(grep -v '^[[:space:]]*$' \
    "$out/logs/$name.log" | tail -n 1 | tr -d '|' | cut -c1-100) |" >"$out/steps/$name"
}
skip() {
  echo "==== $1: not run, $2"
  echo "| $1 | not run | | $2 |" >"$out/steps/$1"
}

no_dependent=""
if [[ $device == cuda && $capability != 9.0 ]]; then
  no_dependent="dependent launches need compute capability 9.0, this is ${capability:-unknown}"
fi
# Finds cuDNN for convolutions: the system's, or else the one installed with PyTorch.
if [[ -z ${SHALE_CUDNN:-} ]] && ! ldconfig -p 2>/dev/null | grep -q 'libcudnn[.]so[.]9'; then
  found=$("$python" -c 'import nvidia.cudnn; print(nvidia.cudnn.__path__[0])' 2>/dev/null)
  if [[ -f $found/lib/libcudnn.so.9 ]]; then export SHALE_CUDNN=$found/lib/libcudnn.so.9; fi
fi
no_peers=""
if [[ ! -d $peers ]]; then
  no_peers="there is no folder peers"
elif ! "$python" -c 'import torch' 2>/dev/null; then
  no_peers="$python has no torch"
fi

# Number of GPUs, and commands that are put in front of a run's command.
gpus=$(nvidia-smi --list-gpus 2>/dev/null | wc -l) launcher=() profiler=()
if [[ $device != cuda ]]; then gpus=2; fi
rank_flags=(--report-every 10)
if [[ $device == cuda ]]; then rank_flags+=(--comm nccl); fi

tool() {  # arguments: COMMAND: succeeds if the command exists, otherwise skips the step
  if command -v "$1" >/dev/null; then return 0; fi
  skip "$name" "there is no $1"
  return 1
}
train() {  # arguments: NAME FLAG...
  if [[ -z $train_lm ]]; then skip "$1" "there is no train_lm"; return; fi
  # The training text is any few megabytes: C++ headers, or Python's files.
  if [[ ! -s $out/text.txt ]]; then
    find /usr/include /usr/lib/python3* /usr/local/cuda/include -type f \
      \( -name '*.h' -o -name '*.py' \) -print0 2>/dev/null | sort -z | head -z -n 1000 |
      xargs -0 cat >"$out/text.txt"
  fi
  rm -rf "$out/$1"
  step "$1" "${launcher[@]}" "$train_lm" "${train_flags[@]}" --device "$device" --data "$out/text.txt" --no-save \
    --out "$out/$1" "${@:2}"
}
launch_on() {  # arguments: NAME RANKS: sets launcher, or skips the step and fails
  if ! command -v mpirun >/dev/null; then skip "$1" "there is no mpirun"; return 1; fi
  if ((gpus < $2)); then skip "$1" "it needs $2 GPUs, this machine has $gpus"; return 1; fi
  launcher=("${profiler[@]}" mpirun --allow-run-as-root --oversubscribe --bind-to none -np "$2")
}
ranks() {  # arguments: NAME RANKS FLAG...: trains on several GPUs
  launch_on "$1" "$2" || return
  train "$1" "${rank_flags[@]}" "${@:3}"
  launcher=()
}
data_parallel() {  # arguments: NAME RANKS
  if [[ -z $bench_data_parallel ]]; then skip "$1" "there is no bench_data_parallel"; return; fi
  if [[ $device != cuda ]]; then skip "$1" "its models are too large for the emulator"; return; fi
  launch_on "$1" "$2" || return
  # bench_report does not read .jsonl files.
  rm -f "$out/rows/$1.jsonl"
  step "$1" "${launcher[@]}" "$bench_data_parallel" --device "$device" --batch $((32 * $2)) \
    --pixels 224 --seq-len 1024 --steps 5 --json "$out/rows/$1.jsonl"
  launcher=()
}
train_steps() {  # arguments: NAME FLAG...
  if [[ -z $bench_train ]]; then skip "$1" "there is no bench_train"; return; fi
  step "$1" "$bench_train" --device "$device" "${@:2}" --json "$out/rows/$1.json"
}
dependent_steps() {  # arguments: NAME FLAG...
  if [[ -n $no_dependent ]]; then skip "$1" "$no_dependent"; return; fi
  train_steps "$@"
}
peer() {  # arguments: NAME SCRIPT FLAG...
  if [[ -n $no_peers ]]; then skip "$1" "$no_peers"; return; fi
  # With --resume, the script continues after the rows that an interrupted step has written.
  step "$1" "$python" "$peers/$2" "${@:3}" --json "$out/rows/$1.json" --resume
}
sanitizer() {  # arguments: NAME
  if [[ $device != cuda ]]; then
    skip "$1" "it checks what runs on a GPU"
  elif ! command -v compute-sanitizer >/dev/null; then
    skip "$1" "there is no compute-sanitizer"
  else
    # With SHALE_TEST_POISON=0, tests do not fill new memory. Filled memory would never count as
    # uninitialised.
    SHALE_TEST_POISON=0 step "$1" \
      compute-sanitizer --tool "$1" --error-exitcode 1 \
      "$test_kernels" --filenames-as-tags "$small_cases"
  fi
}
kernels() {  # arguments: NAME MIN_TIME FLAG...
  step "$1" "$bench_kernels" --device "$device" --min-time "$2" --json "$out/rows/$1.json" "${@:3}"
}

run() {
  case $1 in
    tests) step tests "$test_kernels" "$device_cases" ;;
    tests_dependent)
      if [[ $device != cuda ]]; then
        skip tests_dependent "on the emulator tests has them"
      elif [[ -n $no_dependent ]]; then
        skip tests_dependent "$no_dependent"
      else
        SHALE_TEST_DEPENDENT_LAUNCH=1 step tests_dependent "$test_kernels" "$device_cases"
      fi ;;
    doctor)
      if [[ -z $shale ]]; then skip doctor "there is no shale"; else step doctor "$shale" doctor; fi ;;
    checked)
      if [[ -z $shale ]]; then skip checked "there is no shale"; return; fi
      step checked bash -c "'$shale' doctor --quick | grep -E 'kernels ' || echo 'no check is stored'" ;;
    tune)
      if [[ $device != cuda ]]; then skip tune "the emulator has no times"; return; fi
      step tune "$bench_kernels" --device cuda --min-time 0.02 --tune "$out/gemm_table.inc" ;;
    ncu)
      if [[ $device != cuda ]]; then skip ncu "it counts on GPUs"; return; fi
      tool ncu || return
      step ncu ncu --launch-count 40 --kernel-name regex:attention --metrics \
        l1tex__data_pipe_lsu_wavefronts_mem_shared.sum,smsp__inst_executed_pipe_tensor.sum \
        "$bench_kernels" --device cuda --min-time 0.001 \
        --filter '^attention_(fwd|bwd)/(hopper_)?causal/d128/t8192/bf16$' ;;
    nccl) NCCL_DEBUG=INFO ranks nccl 2 ;;
    zero1) ranks zero1 "$((gpus > 1 ? gpus : 2))" --zero 1 ;;
    pipeline) ranks pipeline 4 --pipeline 4 ;;
    overlap | no_overlap)
      if [[ $device == cuda ]] && command -v nsys >/dev/null; then
        profiler=(nsys profile --force-overwrite true --output "$out/logs/$1")
      fi
      if [[ $1 == no_overlap ]]; then
        ranks no_overlap "$((gpus > 1 ? gpus : 2))" --no-overlap
      else
        ranks overlap "$((gpus > 1 ? gpus : 2))"
      fi
      profiler=() ;;
    data_parallel) data_parallel data_parallel "$((gpus > 1 ? gpus : 2))" ;;
    train) train train ;;
    train_graph) train train_graph --cuda-graph ;;
    figures) kernels figures "$figures_min_time" --filter "$figures" ;;
    bench_kernels) kernels bench_kernels "$min_time" ;;
    own_convolutions) SHALE_CUDNN=off kernels own_convolutions "$min_time" --filter '^conv' ;;
    peer_figures)
      peer peer_figures kernels_gpu.py --min-time "$figures_min_time" --filter "$figures" \
        "${peer_flags[@]}" ;;
    peer_kernels)
      peer peer_kernels kernels_gpu.py --min-time "$min_time" --filter "$peer_filter" \
        "${peer_flags[@]}" ;;
    peer_124m) peer peer_124m gpt2_gpu.py "${gpt2_124m[@]}" ;;
    peer_1558m) peer peer_1558m gpt2_gpu.py "${gpt2_1558m[@]}" ;;
    peer_resnet50) peer peer_resnet50 images_gpu.py --model resnet50 "${peer_images[@]}" ;;
    peer_vit_b16) peer peer_vit_b16 images_gpu.py --model vit-b16 "${peer_images[@]}" ;;
    step_124m) train_steps step_124m "${step_124m[@]}" ;;
    step_resnet50) train_steps step_resnet50 "${resnet50[@]}" ;;
    step_resnet50_own) SHALE_CUDNN=off train_steps step_resnet50_own "${resnet50[@]}" ;;
    step_vit_b16) train_steps step_vit_b16 "${vit_b16[@]}" ;;
    step_124m_graph) train_steps step_124m_graph "${step_124m[@]}" --cuda-graph ;;
    step_124m_dependent) dependent_steps "$1" "${step_124m[@]}" --dependent-launch ;;
    step_124m_both) dependent_steps "$1" "${step_124m[@]}" --cuda-graph --dependent-launch ;;
    step_1558m) train_steps step_1558m "${step_1558m[@]}" ;;
    breakdown) train_steps breakdown --breakdown "${breakdown[@]}" ;;
    *) sanitizer "$1" ;;
  esac
}

# ---- The page of results ----

write_page() {
  local gpu="the emulated GPU: its times mean nothing" name log
  if [[ $device == cuda ]]; then
    gpu=$(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader 2>/dev/null | head -n 1)
  fi
  {
    printf '# GPU results\n\n'
    echo "$(date -u +%Y-%m-%dT%H:%M:%SZ), ${gpu:-unknown GPU}, commit $(git -C "$root" rev-parse \
      --short HEAD 2>/dev/null || echo unknown)"
    printf '\n| run | result | time | last line |\n|---|---|---|---|\n'
    for name in "${steps[@]}"; do cat "$out/steps/$name" 2>/dev/null; done
    if [[ -n $bench_report ]] && compgen -G "$out/rows/*.json" >/dev/null &&
      "$bench_report" --rows "$out/rows" >"$out/logs/report.md" \
        2>"$out/logs/report.log"; then
      echo
      cat "$out/logs/report.md"
    else
      if [[ -s $out/logs/report.log ]]; then
        printf '\nbench_report: %s\n' "$(cat "$out/logs/report.log")"
      fi
      for name in "${steps[@]}"; do
        log=$out/logs/$name.log
        if [[ ! -f $log || $name == tests* || $name == *check ]]; then continue; fi
        printf '\n## %s\n\n```\n' "$name"
        cat "$log"
        echo '```'
      done
    fi
  } >"$page.new"
  mv "$page.new" "$page"
}

export SHALE_TEST_GPU=$device
for name in "${steps[@]}"; do
  if ! due "$name"; then continue; fi
  run "$name"
  write_page
done
write_page

waiting=()
for name in "${steps[@]}"; do
  if [[ ! -e $out/steps/$name ]] && [[ -z ${ONLY:-} || " $ONLY " == *" $name "* ]]; then
    waiting+=("$name")
  fi
done
failed=$(grep -l FAILED "$out"/steps/* 2>/dev/null | wc -l)
echo "wrote $page; $failed failed, ${#waiting[@]} left${waiting:+: ${waiting[*]}}"
if [[ ${#waiting[@]} -gt 0 ]]; then exit 75; fi
[[ $failed -eq 0 ]]
