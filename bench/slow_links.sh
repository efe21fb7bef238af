#!/usr/bin/env bash
# Measures the methods for slow links, between two hosts of two ranks each. The hosts are network
# namespaces of this machine. tc limits the link between them:
#
#   bench/slow_links.sh [BUILD_DIR]      (default build/release; it must be built)
#
# Writes bench/results/slow_links.md and .svg, and takes some minutes. Requires root and an idle
# machine. Variables: RATES (Mbit/s; default "100 1000 10000"), MODEL (flags of train_lm), STEPS
# (measured steps, default 20), EVERY (local steps between outer steps; must divide STEPS; default
# 10), METHODS (numbers of methods in the list below, from 1; default all) and PAGE (output file).
#
# The possible gain depends on the ratio of transfer time to compute time per parameter. This ratio
# is largest in an MoE model, in which a token uses few of the parameters.
# bench/results/slow_links_mixture.md was made with
#   MODEL="--model moe-nano --hidden 512 --experts 32 --active-experts 1" METHODS="1 2 3" RATES=1000
set -uo pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
bin=$(cd "${1:-$root/build/release}" && pwd)/bin
source "$root/test/support/two_hosts.sh"
[[ -x $bin/train_lm ]] || { echo "slow_links.sh: $bin/train_lm is missing: build first" >&2; exit 66; }
command -v tc >/dev/null || skip 'there is no tc command'
work=$(mktemp -d)
trap 'remove_hosts; rm -rf "$work"' EXIT
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1

rates=${RATES:-100 1000 10000}
steps=${STEPS:-20}
every=${EVERY:-10}
page=${PAGE:-$root/bench/results/slow_links.md}
read -ra model <<<"${MODEL:---model llama-nano --vocab 32000}"
# Number of first steps that are not measured: the first step builds the model, and 1-bit Adam
# freezes after two.
skipped=4
shared=("${model[@]}" --seq-len 256 --micro-batch 1 --threads 1 --dtype fp32 --steps $((skipped + steps))
  --no-save --report-every 0 --quiet)

# Each method has a name, then flags. Each host is a replica, except with ZeRO-3, which shards over
# all ranks. With the first method, hosts exchange only flags of overflowing gradients. No method
# can be faster.
methods=(
  "no exchange|--zero 1 --shard-ranks 2 --outer-every 1000000 --outer-start $skipped"
  "AdamW|--zero 1 --shard-ranks 2"
  "1-bit Adam|--zero 1 --shard-ranks 2 --optimizer 1bit-adam --freeze-step 2"
  "local steps, $every|--zero 1 --shard-ranks 2 --outer-every $every --outer-start $skipped"
  "ZeRO-3|--zero 3"
  "ZeRO-3, 8 and 4 bits|--zero 3 --quantize-gathers 8 --quantize-reductions 4"
)
chosen=()
for number in ${METHODS:-$(seq ${#methods[@]})}; do chosen+=("${methods[number - 1]}"); done
methods=("${chosen[@]}")

# Prints a column of the measured steps.
column() {
  sed -nE "s/^\{\"step\": ([0-9]+), .*\"$1\": ([0-9.]+).*/\1 \2/p" "$work/out/metrics.jsonl" |
    awk -v skipped=$skipped '$1 > skipped { print $2 }'
}

make_hosts
for i in $(seq 20000); do echo "line $i of a text that is long enough for every step"; done >"$work/text.txt"
load=$(cut -d' ' -f1 /proc/loadavg)
for rate in $rates; do
  for end in "$left $left_device" "$right $right_device"; do
    read -r ns device <<<"$end"
    in_namespace "$ns" tc qdisc replace dev "$device" root tbf rate "${rate}mbit" \
      burst $((rate * 125 + 65536)) latency 200ms || skip 'tc limits no rates here'
  done
  for method in "${methods[@]}"; do
    rm -rf "$work/out"
    read -ra flags <<<"${method#*|}"
    "${from_left[@]}" $(mpirun_of_hosts) --map-by slot -np 4 "$bin/train_lm" --data "$work/text.txt" \
      --out "$work/out" "${shared[@]}" "${flags[@]}" >"$work/log" 2>&1 ||
      { tail -n 20 "$work/log" >&2; exit 1; }
    speed=$(column step_ms | awk '{ ms += $1; n++ } END { printf "%.0f", n * 1024 / ms * 1000 }')
    sent=$(for name in gradients parameters; do column sent_${name}_bytes; done |
      awk -v n="$steps" '{ bytes += $1 } END { printf "%.2f", bytes / n / 1e6 }')
    between=$(column sent_replicas_bytes |
      awk '{ bytes += $1; n++ } END { if (n > 0) printf "%.2f", bytes / n / 1e6; else print "-" }')
    printf '%s|%s|%s|%s|%s\n' "$rate" "${method%%|*}" "$speed" "$sent" "$between" | tee -a "$work/rows"
  done
done
busier=$(cut -d' ' -f1 /proc/loadavg)

# ---- The page of results ----

count=${#methods[@]}
awk -F'|' -v count="$count" '
  BEGIN { split("#a0a0a0 #4878a8 #d1605e #e7a24a #6a9f58 #8a6fb0", color, " ") }
  { rate[NR] = $1; name[NR] = $2; speed[NR] = $3; if ($3 > most) most = $3 }
  END {
    groups = NR / count; width = 60 + groups * (count * 34 + 40)
    printf "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" font-family=\"sans-serif\" font-size=\"12\">\n", width, 300 + 18 * count
    print "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>"
    print "<text x=\"10\" y=\"18\">tokens per second of four ranks on two hosts</text>"
    for (i = 1; i <= NR; i++) {
      group = int((i - 1) / count); k = (i - 1) % count
      x = 40 + group * (count * 34 + 40) + k * 34; height = 220 * speed[i] / most
      printf "<rect x=\"%d\" y=\"%.1f\" width=\"30\" height=\"%.1f\" fill=\"%s\"/>\n", x, 260 - height, height, color[k + 1]
      printf "<text x=\"%d\" y=\"%.1f\" text-anchor=\"middle\" font-size=\"10\">%d</text>\n", x + 15, 256 - height, speed[i]
      if (k == 0) printf "<text x=\"%d\" y=\"278\">%s Gbit/s</text>\n", x, rate[i] / 1000
    }
    for (k = 0; k < count; k++) {
      printf "<rect x=\"40\" y=\"%d\" width=\"12\" height=\"12\" fill=\"%s\"/>\n", 290 + 18 * k, color[k + 1]
      printf "<text x=\"58\" y=\"%d\">%s</text>\n", 300 + 18 * k, name[k + 1]
    }
    print "</svg>"
  }' "$work/rows" >"${page%.md}.svg"

{
  cat <<END
# Slow links

Made by \`bench/slow_links.sh\` on $(date +%F): $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1), $(nproc) cores;
load before $load, after $busier. This page compares [methods for slow
links](../../docs/explanation/parallelism.md#slow-links) between hosts. It is for everyone whose hosts are
connected by Ethernet.

Four ranks of one thread train on two hosts, which are network namespaces of this machine; \`tc tbf\` limits
the rate of the link. \`train_lm ${model[*]}\` in f32, 256 tokens per rank and step, $steps steps.
Each host is a replica, so that shards stay inside a host; ZeRO-3 shards over all four ranks. 1-bit Adam is
measured after its freeze; each $every local steps include an outer step. "No exchange" sends nothing between the
hosts. Its speed is an upper bound for all methods with replicas.

![Tokens per second by link]($(basename "${page%.md}").svg)

| link, Gbit/s | method | tokens/s | relative to AdamW | relative to no exchange | sent per rank and step, MB | part of it between replicas, MB |
|---:|---|---:|---:|---:|---:|---:|
END
  awk -F'|' 'NR == FNR { if ($2 == "AdamW") base[$1] = $3; if ($2 == "no exchange") bound[$1] = $3; next }
    { printf "| %s | %s | %d | %.2f | %.0f%% | %s | %s |\n", $1 / 1000, $2, $3, $3 / base[$1],
        100 * $3 / bound[$1], $4, $5 }' "$work/rows" "$work/rows"
  cat <<'END'

Bytes are computed as for ring algorithms ([traffic.h](../../comm/traffic.h)). Inside a host, they are not sent
but read from shared memory.
END
} >"$page"
cat "$page"
