#!/usr/bin/env bash
# Tests the build for bare GPU machines, SHALE_KERNELS_ONLY: its tests and its benchmark run on the
# emulator. test/kernels_only.cmake is the short version.
# Usage: test/long/kernels_only.sh BUILD_DIR
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cmake -S "$root" -B "$work" -G Ninja -DCMAKE_BUILD_TYPE=Release -DSHALE_KERNELS_ONLY=ON \
  >"$work/configured"
cmake --build "$work" >"$work/built" || { tail -n 40 "$work/built" >&2; exit 1; }
SHALE_TEST_GPU=emu "$work/bin/test_kernels" '[loss]' | tail -n 1
[[ $("$work/bin/bench_kernels" --help) == *--device* ]]
