#!/usr/bin/env bash
# Builds everything and runs every test that this machine can run.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

usage() {
  cat <<'USAGE'
Usage: ./test.sh [--quick] [--full] [--asan] [--tsan] [--gpu] [--no-bootstrap] [--help]
                 [-- CTEST_ARGUMENT...]

Installs missing packages, builds the preset "release" with tests and benchmarks, runs the tests,
prints the reason for each skipped test, and ends with the line "N passed, N failed, N skipped".
Exits non-zero if a test failed.

  --quick         only check the README's claims, one by one, in a minute after quickstart.sh
                  (CONTRIBUTING.md says what each check does)
  --full          also run the tests that take minutes each
  --asan          also run the unit tests of base, kernels, runtime, and of code that reads files,
                  under the address and undefined-behaviour sanitizers (another build, some minutes)
  --tsan          also run the tests of code that starts threads (collectives, prefetching,
                  watchdog, checkpoints, offload) under the thread sanitizer; needs clang and
                  libomp-dev (another build, some minutes)
  --gpu           also run the kernel tests on this machine's GPU, and fail without one; without
                  this flag they run on the emulator, and on a GPU if there is one
  --no-bootstrap  do not install missing packages
  --              pass the following arguments to ctest, such as -R mpi
USAGE
}

with_quick=false
with_long=false
with_asan=false
with_tsan=false
with_gpu=false
with_bootstrap=true
while [[ $# -gt 0 ]]; do
  case "$1" in
    --quick) with_quick=true ;;
    --full) with_long=true ;;
    --asan) with_asan=true ;;
    --tsan) with_tsan=true ;;
    --gpu) with_gpu=true ;;
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
skipped=0
log=$(mktemp)
reasons=$(mktemp)
causes=$(mktemp)

# Prints the summary, however the script ends. A failed build counts as one failure.
finish() {
  local status=$?
  cat "$reasons" "$causes"
  rm -f "$log" "$reasons" "$causes"
  if [[ $status -ne 0 && $failed -eq 0 ]]; then failed=1; fi
  echo "$passed passed, $failed failed, $skipped skipped"
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

# skip_reasons FILE: prints from ctest's log the reasons why tests, or parts of tests, were skipped.
# Those lines of output begin with "skipped: ".
skip_reasons() {
  awk '
    /^[0-9]+\/[0-9]+ Test: / { test = $3 }
    /^ *skipped: / {
      sub(/^ *skipped: /, "")
      if (seen[$0, test]++) next
      if (!($0 in tests)) order[++count] = $0
      tests[$0] = tests[$0] " " test
    }
    END { for (i = 1; i <= count; ++i) print "skipped in" tests[order[i]] ": " order[i] }
  ' "$1"
}

# failure_causes FILE: prints, from ctest's output, the name of each failed test and the cause. The
# cause is eight lines from each of Catch's first three "FAILED:", or else the last eight lines of
# the output.
failure_causes() {
  awk '
    function report(   i) {
      if (name == "") return
      print "failed: " name
      if (causes == "") {
        for (i = count > 8 ? count - 8 : 0; i < count; ++i) causes = causes "    " lines[i] "\n"
      }
      printf "%s", causes
      name = causes = ""
    }
    /^ *[0-9]+\/[0-9]+ Test +#|^ +Start +[0-9]+:|^[0-9]+% tests passed/ {
      report()
      if (/\*\*\*/ && !/\*\*\*Skipped/) { name = $4; count = blocks = left = 0 }
      next
    }
    name == "" || /^[[:space:]]*$/ { next }
    { lines[count++] = $0 }
    /FAILED:/ && ++blocks <= 3 { left = 8 }
    left-- > 0 { causes = causes "    " $0 "\n" }
  ' "$1"
}

# run_tests PRESET [CTEST_ARGUMENT...]: runs tests, and adds to the counts, the reasons of skips and
# the causes of failures.
run_tests() {
  local preset=$1 counts skips
  shift
  echo "==== $preset: tests"
  # Reads ctest's summary, which says more than its exit status.
  ctest --preset "$preset" --output-on-failure --no-tests=error --parallel "$jobs" "$@" 2>&1 |
    tee "$log" || true
  # "97% tests passed, 1 tests failed out of 38"
  counts=$(sed -nE 's/^[0-9]+% tests passed, ([0-9]+) tests failed out of ([0-9]+)$/\1 \2/p' "$log")
  if [[ -z $counts ]]; then
    echo "test.sh: ctest printed no summary" >&2
    failed=$((failed + 1))
    return
  fi
  # "  113 - faults.lost_host (Skipped)"; ctest counts them as passed.
  skips=$(grep -cE '^[[:space:]]+[0-9]+ - .* \(Skipped\)$' "$log" || true)
  failed=$((failed + ${counts% *}))
  skipped=$((skipped + skips))
  passed=$((passed + ${counts#* } - ${counts% *} - skips))
  skip_reasons "build/$preset/Testing/Temporary/LastTest.log" >>"$reasons"
  failure_causes "$log" >>"$causes"
}

if $with_tsan && ! command -v clang++ >/dev/null; then
  echo "test.sh: --tsan: expected clang++, found none; apt-get install clang libomp-dev" >&2
  exit 69
fi
if $with_bootstrap; then
  if $with_quick; then third_party/bootstrap.sh --minimal; else third_party/bootstrap.sh; fi
fi

if $with_quick; then
  # Uses the programs that are built; if none are, builds those of quickstart.sh.
  preset=quick
  if [[ -x build/release/bin/train_lm && ! -x build/quick/bin/train_lm ]]; then preset=release; fi
  build "$preset" train_lm find_race
  test/quick/run.sh "build/$preset/bin" | tee "$log" || true
  counts=$(sed -nE '$s/^([0-9]+) passed, ([0-9]+) failed$/\1 \2/p' "$log")
  passed=${counts% *}
  failed=${counts#* }
  [[ -n $counts && $failed -eq 0 ]]
  exit
fi

build release
run_tests release ${ctest_arguments[@]+"${ctest_arguments[@]}"}

if $with_long; then
  build quick train_lm train_image train_diffusion  # names of sources that are compiled together
  run_tests release --build-config long --tests-regex '^long\.' \
    ${ctest_arguments[@]+"${ctest_arguments[@]}"}
fi

if $with_gpu; then
  run_tests release --build-config gpu --tests-regex '^gpu\.' \
    ${ctest_arguments[@]+"${ctest_arguments[@]}"}
fi

if $with_asan; then
  build asan test_base test_comm test_kernels test_models test_runtime
  run_tests asan --tests-regex \
    '^(base|kernels|runtime|comm\.checkpoint|models\.training\.report)\.|\.(hf|hostile_files)$' \
    ${ctest_arguments[@]+"${ctest_arguments[@]}"}
fi

if $with_tsan; then
  build tsan
  run_tests tsan ${ctest_arguments[@]+"${ctest_arguments[@]}"}
fi

if [[ $failed -ne 0 ]]; then exit 1; fi
