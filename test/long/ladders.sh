#!/usr/bin/env bash
# Compares the timing model of Hopper kernels (test/machine_code/timing.h) with published speeds of
# other projects' kernels, which are compiled here, and prints the table of docs/contributing/ladders.md.
# Fails if a step's ratio is more than 10% off, or a speed of the worklog more than 15%. Takes
# minutes and requires nvcc 13 and those repositories, but no GPU.
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
    0251105a2fb19d2957484b7f023cd8c115286ced
fi
if [[ -z ${CUTLASS:-} ]]; then
  checkout cutlass https://github.com/NVIDIA/cutlass 7107b05535f8977f5ecb9d01ee203205b1fd9bc4
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

# Compiles FlashAttention-3's forward with heads of 128. With `overlaps`, matmuls of a warpgroup
# overlap. With `plain`, warpgroups alternate on the tensor cores. With `neither`, they do neither.
for kind in neither:false plain:false overlaps:true; do
  folder=$work/fa3_${kind%:*}
  rm -rf "$folder"
  cp -r "$attention/hopper" "$folder"
  line='return {128, use_blockN_128 ? 128 : 176, true, true};'
  grep -qF "$line" "$folder/tile_size.h" || { echo "tile_size.h has no line: $line" >&2; exit 1; }
  sed -i "s/${line}/${line/true, true/true, ${kind#*:}}/" "$folder/tile_size.h"
  if [[ ${kind%:*} == neither ]]; then
    turns='static constexpr bool UseSchedulerBarrier = '
    loop=$folder/mainloop_fwd_sm90_tma_gmma_ws.hpp
    grep -qF "$turns" "$loop" || { echo "$loop has no line: $turns" >&2; exit 1; }
    sed -i "/$turns/,/;/c\    ${turns}false;" "$loop"
  fi
  cat >"$folder/forward.cu" <<'END'
#include "flash_fwd_launch_template.h"
template void run_flash_fwd<90, 128, 128, 1, cutlass::half_t, cutlass::half_t, false, false, false,
                            false, false, false, false, false, false, false>(Flash_fwd_params&,
                                                                             cudaStream_t);
END
  compile "fa3_${kind%:*}.cubin" "$folder/forward.cu" "${theirs[@]}" -I"$cutlass/include" \
    -DCUTLASS_DEBUG_TRACE_LEVEL=0 -DCUTLASS_ENABLE_GDC_FOR_SM90 \
    -DCUTE_SM90_EXTENDED_MMA_SHAPES_ENABLED
done

"$build/test/machine_code_ladders" "$root/test/machine_code/ladders.txt" "$work/objects" |
  tee "$work/table.md"
awk -F ' *[|] *' '
  $13 ~ /%/ {
    ++steps
    if ($13 + 0 > 10 || $13 + 0 < -10) { print $2 " " $3 ": " $13 " off, at most 10%"; bad = 1 }
  }
  $2 == "worklog" && $10 != "yes" { print $2 " " $3 ": " $9 " off, at most 15%"; bad = 1 }
  END { exit bad || steps != 11 }' "$work/table.md"
