#!/usr/bin/env bash
# Measures training steps on long sequences, with dense and with block-sparse attention:
#
#   bench/long_sequences.sh [BUILD_DIR]      (default build/release; it must be built)
#
# Prints a table, and takes about 20 minutes on two idle cores. Variables: LENGTHS (tokens, in
# ascending order), DENSE (longest sequence with dense attention), PATTERN, MODEL (flags of
# train_lm; the defaults have 2 layers of 4 heads).
#
# A dense step of T tokens is modelled as taking a T + b T^2. A step with as many tokens as the
# shortest length, in sequences of 1,024, measures a; b T^2 is the rest. The bound of the gain is
# the dense step divided by a T + b T^2 v, where v is the share of causal scores that the pattern
# computes. "scores stored" is a length: at this length, an attention that stores its scores for
# backward, 4 bytes each, would need the peak memory of the sparse step.
set -euo pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
bin=$(cd "${1:-$root/build/release}" && pwd)/bin
[[ -x $bin/train_lm ]] || { echo "long_sequences.sh: $bin/train_lm is missing: build first" >&2; exit 66; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
read -ra lengths <<<"${LENGTHS:-8192 16384 32768 65536 131072}"
dense=${DENSE:-65536}
pattern=${PATTERN:-longformer}
layers=2 heads=4
read -ra model <<<"${MODEL:---model llama-nano --layers $layers --width 256 --heads $heads --hidden 688}"

for ((i = 0; i < 60000; ++i)); do echo "line $i of a text that is long enough"; done >"$work/text.txt"

# step LENGTH SEQUENCES FLAG...: seconds and peak bytes of the faster of two steps after the first
step() {
  "$bin/train_lm" --data "$work/text.txt" "${model[@]}" --seq-len "$1" --micro-batch "$2" --steps 3 \
    --no-save --quiet --report-every 0 --out "$work/out" "${@:3}" >"$work/log" 2>&1 || { cat "$work/log" >&2; exit 1; }
  sed -nE 's/^\{"step": [23], .*"step_ms": ([0-9.]+).*"device_peak_bytes": ([0-9]+).*/\1 \2/p' \
    "$work/out/metrics.jsonl" | sort -n | awk 'NR == 1 { print $1 / 1000, $2 }'
  rm -rf "$work/out"
}
short=$(step 1024 $((lengths[0] / 1024)))
for length in "${lengths[@]}"; do
  both=$(step "$length" 1 --attention-pattern "$pattern")
  ((length > dense)) || both+=" $(step "$length" 1)"
  echo "$length $both" | tee -a "$work/rows" >&2
done

# The default patterns have blocks of 128 tokens: 4 local ones, half of one of which is causally
# masked, and one global block.
awk -v layers=$layers -v heads=$heads -v visible=576 -v short="${short% *}" -v shortest="${lengths[0]}" '
  { n = NR; t[n] = $1; sparse[n] = $2; bytes[n] = $3; full[n] = $4; dense_bytes[n] = $5 }
  $4 { last = n }
  { x += $1; y += $3; xx += $1 * $1; xy += $1 * $3 }
  END {
    b = (full[last] / t[last] - short / shortest) / (t[last] - 1024)
    a = short / shortest - b * 1024
    slope = (n * xy - x * y) / (n * xx - x * x); base = (y - slope * x) / n
    print "| tokens | dense s | sparse s | gain | bound | dense MiB | sparse MiB | linear fit | scores stored |"
    print "|---:|---:|---:|---:|---:|---:|---:|---:|---:|"
    for (i = 1; i <= n; ++i) {
      dense = full[i] ? full[i] : a * t[i] + b * t[i] * t[i]
      bound = dense / (a * t[i] + (dense - a * t[i]) * 2 * visible / t[i])
      s = 4 * layers * heads  # bytes of scores = s T^2
      stored = (-slope + sqrt(slope * slope + 4 * s * (bytes[i] - base))) / (2 * s)
      printf "| %d | %s | %.2f | %s | %.1f | %s | %.0f | %+.1f%% | %d, 1/%.0f |\n", t[i],
        sprintf(full[i] ? "%.2f" : "(%.0f)", dense), sparse[i],
        sprintf(full[i] ? "%.1f" : "(%.1f)", dense / sparse[i]), bound,
        dense_bytes[i] ? sprintf("%.0f", dense_bytes[i] / 1048576) : "", bytes[i] / 1048576,
        100 * (base + slope * t[i] - bytes[i]) / bytes[i], stored, t[i] / stored
    }
  }' "$work/rows"
