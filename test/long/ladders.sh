#!/usr/bin/env bash
# Compares the timing model of Hopper kernels (test/machine_code/timing.h) with published speeds of
# other projects' kernels, which are compiled here, and prints the table of docs/contributing/ladders.md.
# Fails if a step's ratio is more than 10% off, or a speed more than 15% whose prediction is not listed
# as withdrawn. Takes minutes and requires nvcc 13 and those repositories, but no GPU.
# Usage: test/long/ladders.sh BUILD_DIR
# The environment variables FAST_CU, FLASH_ATTENTION and CUTLASS are checkouts of those
# repositories, which are cloned otherwise; FOLDER keeps the compiled objects.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
build=$(cd "$1" && pwd)
source "$root/test/support/work_folder.sh"
mkdir -p "$work/objects"

# checkout NAME URL COMMIT: checks out a repository to $work/NAME.
checkout() {
  [[ -d $work/$1/.git ]] && return
  git init -q "$work/$1"
  git -C "$work/$1" fetch -q --depth 1 "$2" "$3" || skip "$2 cannot be fetched"
  git -C "$work/$1" checkout -q FETCH_HEAD
}
skip() {
  echo "skipped: $1"
  rm -rf "${work:?}"/{fast.cu,flash-attention,cutlass}
  exit 4
}
command -v nvcc >/dev/null || skip "no nvcc"
if [[ -z ${FAST_CU:-} ]]; then
  checkout fast.cu https://github.com/pranjalssh/fast.cu 38eb642e0c081231d6f695978be63604bd7c689b
fi
if [[ -z ${FLASH_ATTENTION:-} ]]; then
  checkout flash-attention https://github.com/Dao-AILab/flash-attention \
    7f67966cc742029c0a93755a20c583667836f9d5
fi
if [[ -z ${CUTLASS:-} ]]; then
  checkout cutlass https://github.com/NVIDIA/cutlass fa4f6359069bd4dd6fabd0cda2476dd8e72b3837
fi
fast=${FAST_CU:-$work/fast.cu}
attention=${FLASH_ATTENTION:-$work/flash-attention}
cutlass=${CUTLASS:-$work/cutlass}

# compile OUT SOURCE FLAG...: compiles for compute capability 9.0, unless OUT exists.
compile() {
  local out=$work/objects/$1 source=$2
  shift 2
  [[ -s $out ]] && return
  nvcc -O3 -gencode arch=compute_90a,code=sm_90a "$@" -o "$out" "$source" >"$out.log" 2>&1 ||
    { tail -n 20 "$out.log" >&2; exit 1; }
}
theirs=(-std=c++17 -DNDEBUG --expt-relaxed-constexpr --expt-extended-lambda --use_fast_math -cubin)

for step in 2 3 4 5 6 7 8 9 10 11; do
  cat >"$work/fast$step.cu" <<END
#include <cuda.h>
#include <cudaTypedefs.h>
#include <cuda/barrier>
#include <cuda_bf16.h>
#include <algorithm>
#include <cassert>
#include <cstdio>
#include <iostream>
#include <unistd.h>
#include <vector>
typedef __nv_bfloat16 bf16;
#define CEIL_DIV(M, N) (((M) + (N) - 1) / (N))
#define cudaCheck(error) (error)
#include "$fast/examples/matmul/matmul_$step.cuh"
END
  compile "fast$step.cubin" "$work/fast$step.cu" "${theirs[@]}"
done

# FlashAttention-3 as released with its paper, which has the published speeds. Headers of PyTorch are
# replaced: these kernels need none of it.
mkdir -p "$work/torch/ATen/cuda"
echo '#define C10_CUDA_CHECK(call) (void)(call)
#define C10_CUDA_KERNEL_LAUNCH_CHECK()' >"$work/torch/ATen/cuda/CUDAContext.h"
echo 'namespace at { struct PhiloxCudaState {}; }' >"$work/torch/ATen/cuda/CUDAGeneratorImpl.h"
touch "$work/torch/ATen/cuda/CUDAGraphsUtils.cuh"
for kernel in fwd64:64,192,128,16,2,false,1 fwd128:128,128,176,12,2,false,2 \
  bwd64:64,128,128,12,true,false,false,1,2,2,1 bwd128:128,64,128,12,true,false,true,1,2,1,1; do
  name=${kernel%:*} direction=${kernel:0:3}
  cat >"$work/$name.cu" <<END
#include "flash_${direction}_launch_template.h"
template void run_flash_$direction<
    Flash_${direction}_kernel_traits<${kernel#*:}, cutlass::half_t>, false>(
    Flash_${direction}_params&, cudaStream_t);
END
  compile "$name.cubin" "$work/$name.cu" "${theirs[@]}" -I"$work/torch" -I"$attention/hopper" \
    -I"$cutlass/include" -DCUTLASS_DEBUG_TRACE_LEVEL=0
done

"$build/test/machine_code_ladders" "$root/test/machine_code/ladders.txt" "$work/objects" |
  tee "$work/table.md"
awk -F ' *[|] *' '
  $13 ~ /%/ {
    ++steps
    if ($13 + 0 > 10 || $13 + 0 < -10) { print $2 " " $3 ": " $13 " off, at most 10%"; bad = 1 }
  }
  # The page says why these two are withdrawn.
  $10 == "withdrawn" && $2 " " $3 !~ /^(forward64 16k|backward128 1k)$/ {
    print $2 " " $3 ": " $9 " off, at most 15%"; bad = 1
  }
  END { exit bad || steps != 15 }' "$work/table.md"
