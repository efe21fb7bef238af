#!/usr/bin/env bash
# Builds everything and runs every test that this machine can run.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

usage() {
  cat <<'USAGE'
Usage: ./test.sh [--asan] [--tsan] [--no-bootstrap] [--help] [-- CTEST_ARGUMENT...]

Installs the packages that are missing, builds the preset "release" with tests and benchmarks,
runs the tests, and ends with the line "N passed, N failed". Exits non-zero unless all passed.

  --asan          also run the unit tests of base, kernels and runtime under the address and
                  undefined-behaviour sanitizers (another build, some minutes)
  --tsan          also run the tests of what has threads of its own (collectives, prefetching,
                  watchdog, checkpoints, offload) under the thread sanitizer; wants clang and
                  libomp-dev (another build, some minutes)
  --no-bootstrap  do not look for missing packages
  --              what follows goes to ctest, such as -R mpi
USAGE
}

with_asan=false
with_tsan=false
with_bootstrap=true
while [[ $# -gt 0 ]]; do
  case "$1" in
    --asan) with_asan=true ;;
    --tsan) with_tsan=true ;;
    --no-bootstrap) with_bootstrap=false ;;
    -h | --help) usage; exit 0 ;;
    --) shift; break ;;
    *) echo "test.sh: unknown argument '$1'" >&2; usage >&2; exit 64 ;;
  esac
  shift
done
ctest_arguments=("$@")

jobs=$(nproc)
passed=0
failed=0
log=$(mktemp)

# The last line is there however the script ends; a build that failed counts as one failure.
finish() {
  local status=$?
  rm -f "$log"
  if [[ $status -ne 0 && $failed -eq 0 ]]; then failed=1; fi
  echo "$passed passed, $failed failed"
}
trap finish EXIT

# build PRESET [CMAKE_TARGET...]
build() {
  local preset=$1
  shift
  echo "==== $preset: build"
  cmake --preset "$preset"
  cmake --build --preset "$preset" --parallel "$jobs" ${@:+--target "$@"}
}

# run_tests PRESET [CTEST_ARGUMENT...]: adds to the counts.
run_tests() {
  local preset=$1 counts
  shift
  echo "==== $preset: tests"
  # Its exit status says less than its summary, which is read instead.
  ctest --preset "$preset" --output-on-failure --no-tests=error --parallel "$jobs" "$@" 2>&1 |
    tee "$log" || true
  # "97% tests passed, 1 tests failed out of 38"
  counts=$(sed -nE 's/^[0-9]+% tests passed, ([0-9]+) tests failed out of ([0-9]+)$/\1 \2/p' "$log")
  if [[ -z $counts ]]; then
    echo "test.sh: ctest printed no summary" >&2
    failed=$((failed + 1))
    return
  fi
  failed=$((failed + ${counts% *}))
  passed=$((passed + ${counts#* } - ${counts% *}))
}

if $with_tsan && ! command -v clang++ >/dev/null; then
  echo "test.sh: --tsan: expected clang++, found none; apt-get install clang libomp-dev" >&2
  exit 69
fi
if $with_bootstrap; then third_party/bootstrap.sh; fi

build release
run_tests release ${ctest_arguments[@]+"${ctest_arguments[@]}"}

if $with_asan; then
  build asan test_base test_kernels test_runtime
  run_tests asan --tests-regex '^(base|kernels|runtime)\.' \
    ${ctest_arguments[@]+"${ctest_arguments[@]}"}
fi

if $with_tsan; then
  build tsan
  run_tests tsan ${ctest_arguments[@]+"${ctest_arguments[@]}"}
fi

if [[ $failed -ne 0 ]]; then exit 1; fi
