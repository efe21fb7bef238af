#!/usr/bin/env bash
# symbols.sh LIBRARY HEADER: fails unless the library exports exactly the functions that the header
# declares, and no symbols of C++ or of libraries linked into it.
set -uo pipefail
library=$1 header=$2

shown=$(nm -D --defined-only "$library" | awk '$2 != "A" { sub(/@.*/, "", $3); print $3 }' | sort -u)
declared=$(grep -oE '^SHALE_API .*\bshale_[a-z0-9_]+\(' "$header" |
  sed -E 's/.*(shale_[a-z0-9_]+)\($/\1/' | sort -u)
if [[ $(wc -w <<<"$declared") -lt 50 ]]; then
  echo "FAILED: $header declares hardly a function"
  exit 1
fi
different=$(diff <(echo "$declared") <(echo "$shown") | grep '^[<>]' | sort -r)
if [[ -n $different ]]; then
  echo "FAILED: < is declared and not shown, > is shown and not declared"
  head -n 20 <<<"$different"
  exit 1
fi
echo "$(wc -w <<<"$shown") functions are shown, all of them declared"
