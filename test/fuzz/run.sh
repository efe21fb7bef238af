#!/usr/bin/env bash
# test/fuzz/run.sh [EXECUTIONS] [TARGET...]
# Builds the fuzz targets with Clang and the address and undefined-behaviour sanitizers. Runs each
# target, or only those named, EXECUTIONS times (default 10 million) with at most 512 MB. A finding
# ends the script. Its input is in build/fuzz/findings/; once the error is fixed, add it to the
# seeds. The corpus is kept in build/fuzz/corpus/ for the next run.
set -euo pipefail
cd "$(dirname "$0")/../.."

executions=${1:-10000000}
shift || true
targets=("$@")
if [[ ${#targets[@]} -eq 0 ]]; then
  for source in test/fuzz/*.cpp; do targets+=("$(basename "$source" .cpp)"); done
fi

cmake --preset fuzz
cmake --build --preset fuzz

# Keeps freed memory in the sanitizer's quarantine from counting towards the limit.
export ASAN_OPTIONS=quarantine_size_mb=64
mkdir -p build/fuzz/findings
for target in "${targets[@]}"; do
  corpus="build/fuzz/corpus/$target"
  mkdir -p "$corpus"
  echo "== $target: $executions executions"
  "build/fuzz/bin/fuzz_$target" -runs="$executions" -rss_limit_mb=512 -max_len=4096 -timeout=10 \
    -dict=test/fuzz/json.dict -artifact_prefix="build/fuzz/findings/$target-" \
    -print_final_stats=1 -verbosity=0 "$corpus" "test/fuzz/seeds/$target"
done
echo "no findings in ${#targets[@]} targets"
