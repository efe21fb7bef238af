#!/usr/bin/env bash
# Tests shale plan: memory of a run by unit and tag, comparison of a run with its plan, and
# impossible layouts.
source "$(dirname "${BASH_SOURCE[0]}")/../support/cli.sh"
shown=("$work/stdout" "$work/stderr")

for i in $(seq 2000); do echo "line $i of a text that is long enough"; done >"$work/text.txt"

plan() {  # arguments: FLAGS...: leaves the exit code in `code`
  "$BIN_DIR/shale" plan "$@" >"$work/stdout" 2>"$work/stderr"
  code=$?
}
says() { grep -qF -- "$1" "$work/stdout" || fail "no '$1'"; }

# ---- A run compared with its plan ----
timeout 120 mpirun --oversubscribe --bind-to none -np 2 "$BIN_DIR/train_lm" --data "$work/text.txt" \
  --layers 2 --width 64 --heads 2 --seq-len 64 --steps 5 --zero 3 --no-overlap --threads 1 --offload optimizer \
  --eval-every 5 --eval-samples 4 --out "$work/out" >"$work/stdout" 2>"$work/stderr" ||
  fail "train_lm: exit code $?"
[[ $(wc -l <"$work/out/memory.jsonl") -eq 2 ]] || fail "memory.jsonl has not a line for each rank"
plan --check "$work/out"
[[ $code -eq 0 ]] || fail "check: exit code $code"
says 'the memory of 2 ranks is the planned one to the byte'

# Changes an option of the run, to show that the check can fail.
sed -i 's/"seq_len": 64/"seq_len": 32/' "$work/out/config.json"
plan --check "$work/out"
[[ $code -eq 1 ]] || fail "check of another length: exit code $code, expected 1"
says 'rank 0, device, activations: the run had'
plan --check "$work/none"
[[ $code -eq 66 ]] || fail "check of no run: exit code $code, expected 66"

# ---- Runs larger than any test machine ----
plan --model gpt2-1558m --seq-len 1024 --micro-batch 4 --ranks 1024 --zero 3 --explain
[[ $code -eq 0 ]] || fail "gpt2-1558m: exit code $code"
says '1557686400 parameters'  # counts rows that pad the vocabulary
says 'rank 0 (shard 0): '
says 'planned 1 of 1024 ranks'
# MiB: about 12 bytes per parameter; some parameters are on one rank only
says 'host, for saves: 17.'
plan --model llama-nano --ranks 8 --pipeline 4 --micro-batch 1 --global-batch 8 --layers 4 --threads 1 --json
[[ $code -eq 0 ]] || fail "pipeline: exit code $code"
[[ $(grep -c '^{"rank": ' "$work/stdout") -eq 4 ]] || fail "pipeline: expected a line for each stage"
# A deep pipeline: each of 16 stages has 4,096 micro-batches, of which the plan runs only a few.
plan --model nano --layers 96 --width 12288 --heads 96 --vocab 51200 --seq-len 2048 --micro-batch 1 \
  --global-batch 4096 --zero 1 --tensor 8 --pipeline 16 --pipeline-chunks 6 --ranks 128 --dtype bf16 \
  --threads 1 --cluster h100
[[ $code -eq 0 ]] || fail "175B: exit code $code, expected 0"
says 'rank 16: at most the memory of rank 8'

plan --model nano --ranks 4 --global-batch 32 --micro-batch 4 --device-memory 30MiB --layouts
[[ $code -eq 0 ]] || fail "layouts: exit code $code"
says '  --zero 3 --recompute full --offload params'
says '  --zero 1 --pipeline 4'
says '(more than --device-memory)'
grep -q -- '--zero 2 --pipeline' "$work/stdout" && fail "layouts: a combination that cannot be"

for kind in gather ring ulysses ulysses+ring; do
  plan --model llama-nano --seq-len 64 --document-mask --ranks 4 --context 2 --threads 1 \
    --context-kind $kind
  [[ $code -eq 0 ]] || fail "documents, $kind: exit code $code"
done
plan --model llama-nano --task dpo --seq-len 64 --ranks 2 --threads 1
[[ $code -eq 0 ]] || fail "preferences: exit code $code"

# ---- Time ----
clusters=$(dirname "${BASH_SOURCE[0]}")/../../deploy/clusters
for cluster in "$clusters"/*.json; do
  plan --model gpt2-124m --ranks 16 --zero 1 --dtype bf16 --threads 1 --cluster "$cluster"
  [[ $code -eq 0 ]] || fail "$cluster: exit code $code"
  says 'a step of 32768 tokens on 16 x '
  says 'waiting for parameters and gradients'
  says '0% measured'
done
known='measured|fitted|extrapolated|[0-9]+% (measured|fitted)'
grep '^ .* ms .*%  [a-z]' "$work/stdout" >"$work/parts" || fail 'a step has no parts'
grep -vE "\\(($known|as the stages' times)\\)\$" "$work/parts" &&
  fail 'a part does not say how it is known'
plan --model gpt2-124m --ranks 16 --zero 1 --threads 1 --cluster "$clusters/h100.json" --json
for part in products attention others host slowed exposed_data exposed_model exposed_host; do
  grep -qE "\"${part}_s\": [^,]*, \"${part}_known\": \"($known)\"" "$work/stdout" ||
    fail "--json does not say how $part is known"
done
for cluster in "$clusters"/*.json; do
  plan --model gpt2-124m --ranks 8 --dtype bf16 --threads 1 --offload optimizer --cluster "$cluster"
  [[ $code -eq 0 ]] || fail "offload, $cluster: exit code $code"
  [[ $cluster == */cpu_host.json ]] || says 'waiting for copies from the host, and for the CPU step'
done
plan --model gpt2-124m --ranks 8 --zero 3 --threads 1 --offload params --offload-activations \
  --cluster "$clusters/rtx4090.json"
[[ $code -eq 0 ]] || fail "offload of parameters and activations: exit code $code"
grep -v host_ "$clusters/h100.json" >"$work/cluster.json"
plan --model nano --threads 1 --offload optimizer --cluster "$work/cluster.json"
[[ $code -eq 64 ]] || fail "offload to hosts that nobody knows: exit code $code, expected 64"
grep -qF 'set host_gbytes_per_s' "$work/stderr" || fail "offload: no word of what is missing"

# A cluster file with very deep nesting must give a one-line error, not a stack overflow.
perl -e 'print "{\"links\":", "[" x 200000' >"$work/deep.json"
plan --model nano --threads 1 --cluster "$work/deep.json"
[[ $code -eq 64 ]] || fail "nested machines: exit code $code, expected 64"
grep -qF 'JSON is nested deeper than 64 levels' "$work/stderr" || fail 'no word of nested machines'

# Prices: 700 W, and 2 per hour of a GPU. At r tokens/s, 1e9 tokens take 1e9 / r / 3600 hours.
sed 's/"power_w": 700/"power_w": 700, "price_per_hour": 2/' "$clusters/h100.json" \
  >"$work/cluster.json"
plan --model gpt2-124m --ranks 8 --zero 1 --threads 1 --cluster "$work/cluster.json"
awk '/ tok\/s/ { for (i = 1; i < NF; ++i) if ($(i + 1) ~ /^tok\/s/) rate = $i }
     /kWh for/ { energy = $1 } /to pay for/ { price = $1 }
     END { hours = 8e9 / rate / 3600
           exit !(energy / (0.7 * hours) > 0.99 && energy / (0.7 * hours) < 1.01 &&
                  price / (2 * hours) > 0.99 && price / (2 * hours) < 1.01) }' "$work/stdout" ||
  fail "energy and money are not those of the rate"

# Days, dollars and the range of a run, which follow from the step time and the rate in tokens/s.
whole=(--model gpt2-124m --ranks 8 --zero 1 --threads 1 --tokens 15T --price 2.5)
plan "${whole[@]}" --cluster h100
[[ $code -eq 0 ]] || fail "a whole run: exit code $code"
awk 'function near(a, b) { return a > 0.99 * b && a < 1.01 * b }
     function number(text) { sub(/^\(/, "", text); return text ~ /k$/ ? 1e3 * text : 1 * text }
     / tok\/s/ { for (i = 1; i < NF; ++i) {
                   if ($(i + 1) ~ /^s,/) step = $i
                   if ($(i + 1) ~ /^tok\/s/) rate = $i } }
     /^  usually between/ { low = $3; high = $5 }
     /^  15\.0T tokens: / { days = $3; from = number($5); to = $7 + 0; dollars = number($8) }
     END { exit !(near(low, 0.85 * step) && near(high, 1.15 * step) &&
                  near(days, 15e12 / rate / 86400) && near(from, 0.85 * days) &&
                  near(to, 1.15 * days) && near(dollars, days * 24 * 8 * 2.5)) }' "$work/stdout" ||
  fail "days, dollars or range are not those of the step"
one=$(sed -nE 's/^  15\.0T tokens: ([^ ]*) days .*, ([^ ]*) dollars at 2\.50 per device hour$/\1 \2/p' \
  "$work/stdout")
plan "${whole[@]}" --price 0 --cluster h100
says ' days (' && grep -q ' dollars at ' "$work/stdout" && fail "dollars without a price"
plan --model nano --cluster h100 --price 2.5
[[ $code -eq 64 ]] || fail "--price without --tokens: exit code $code, expected 64"

# Several clusters: one row for each.
plan "${whole[@]}" --cluster h100,a100
[[ $code -eq 0 ]] || fail "two clusters: exit code $code"
[[ $(sed -n 1p "$work/stdout") =~ ^cluster\ +fits\ .*\ days\ +dollars$ ]] || fail "two clusters: no title"
[[ $(awk '/^H100 / { print $(NF - 1), $NF }' "$work/stdout") == "$one" ]] ||
  fail "two clusters: the row of H100 has not $one, the days and dollars of its own plan"
[[ $(sed -n 3p "$work/stdout") =~ ^A100\ .*\ yes\  ]] || fail "two clusters: no row of A100"
[[ $(wc -l <"$work/stdout") -eq 3 ]] || fail "two clusters: expected a title and two rows"
plan "${whole[@]}" --cluster h100,a100 --device-memory 1MiB
[[ $code -eq 71 && $(grep -c ' no ' "$work/stdout") -eq 2 ]] || fail "clusters too small: exit code $code"

plan --model llama-nano --layers 2 --ranks 4 --global-batch 8 --threads 1 --layouts --top 5 \
  --cluster "$clusters/h100.json" --tokens 15T --price 2.5
[[ $code -eq 0 ]] || fail "layouts by time: exit code $code"
grep -A 2 '^the fastest layout:$' "$work/stdout" |
  grep -qE '^  15\.0T tokens: .* days \(.* to .*\), .* dollars at 2\.50 per device hour$' ||
  fail "layouts by time: no days and dollars of the fastest layout"
says '--micro-batch'
says ' planned, '
[[ $(grep -c '^ .* ms ' "$work/stdout") -eq 5 ]] || fail "layouts by time: expected 5"
awk '/^ .* ms / { for (i = 1; i < NF; ++i) if ($(i + 1) == "ms") { if ($i < last) exit 1; last = $i } }' \
  "$work/stdout" || fail "layouts by time: not the fastest first"
plan --model llama-nano --layers 2 --ranks 4 --global-batch 8 --threads 1 --layouts --top 5 \
  --cluster "$clusters/h100.json" --micro-batch 2 --recompute selective
[[ $code -eq 0 ]] || fail "layouts of a micro-batch: exit code $code"
[[ $(grep ' ms ' "$work/stdout" | grep -c -- '--recompute selective --micro-batch 2') -eq 5 ]] ||
  fail "layouts: others than of the given --micro-batch and --recompute"
plan --model nano --ranks 4 --layouts --zero 2
[[ $code -eq 64 ]] || fail "layouts with --zero: exit code $code, expected 64"
plan --model nano --ranks 4 --layouts --recompute full
[[ $code -eq 64 ]] || fail "layouts with --recompute: exit code $code, expected 64"
plan --model llama-nano --layers 2 --ranks 4 --layouts --tensor 2 --threads 1
[[ $code -eq 0 ]] || fail "layouts of --tensor 2, which is not chosen without a cluster: $code"
plan --model llama-nano --layers 2 --ranks 4 --layouts --tensor 2 --threads 1 \
  --cluster "$clusters/h100.json"
[[ $code -eq 64 ]] || fail "layouts with --tensor and a cluster: exit code $code, expected 64"
plan --model nano --ranks 2 --global-batch 4 --threads 1 --device-memory 1MiB --layouts \
  --cluster "$clusters/h100.json"
[[ $code -eq 71 ]] || fail "layouts that do not fit: exit code $code, expected 71"
grep -qE 'none of [0-9]+ layouts fits in 1.0 MiB' "$work/stderr" ||
  fail "layouts that do not fit: no word of it"

# A search with --init has the same bounds, and so the same result, as one of a model with the same
# sizes. Both plan models of one and two layers for the bounds.
sizes=(--model llama-nano --layers 12 --width 64 --heads 4 --kv-heads 2 --hidden 192 --vocab 8192
  --seq-len 64 --threads 1)
"$BIN_DIR/train_lm" "${sizes[@]}" --data "$work/text.txt" --steps 1 --global-batch 1 --micro-batch 1 \
  --out "$work/first" --keep 0 --export "$work/stored" >"$work/stdout" 2>"$work/stderr" ||
  fail "no model for --init: exit code $?"
search=(--seq-len 64 --threads 1 --ranks 8 --global-batch 8 --layouts --search-nodes 8
  --device-memory 14MiB --cluster "$clusters/h100.json")
for model in sizes stored; do
  flags=("${sizes[@]}")
  [[ $model == sizes ]] || flags=(--init "$work/stored")
  plan "${flags[@]}" "${search[@]}"
  [[ $code -eq 0 ]] || fail "layouts, $model: exit code $code"
  sed 's/; [0-9.]* s$//' "$work/stdout" >"$work/layouts_$model"
  plan "${flags[@]}" --seq-len 64 --threads 1 --ranks 8 --zero 3 --lora-rank 4 --frozen-dtype nf4 --json
  [[ $code -eq 0 ]] || fail "adapters, $model: exit code $code"
  cp "$work/stdout" "$work/adapters_$model"
done
cmp -s "$work/adapters_sizes" "$work/adapters_stored" ||
  fail "adapters with --init need other memory than for the same sizes"
cmp -s "$work/layouts_sizes" "$work/layouts_stored" ||
  fail "layouts with --init are not those of the same sizes: $(cat "$work/layouts_sizes")"
# train_lm refuses --tensor with nf4, so the search does not try it.
plan --init "$work/stored" --lora-rank 4 --frozen-dtype nf4 "${search[@]}" --device-memory 1GiB
[[ $code -eq 0 ]] || fail "layouts with adapters on nf4: exit code $code"
grep -q -- '--tensor' "$work/stdout" && fail "layouts with nf4: one that train_lm refuses"
# ZeRO-1 gathers only trainable parameters. A bound that also counts the frozen ones would exclude
# ZeRO-1 on a slow network.
sed -e 's/"devices_per_node": [0-9]*/"devices_per_node": 1/' \
  -e 's/"network_gbytes_per_s": [0-9.]*/"network_gbytes_per_s": 0.01/' \
  -e 's/"overlap_tax": [0-9.]*/"overlap_tax": 0/' "$clusters/h100.json" >"$work/slow.json"
adapters=(--init "$work/stored" --lora-rank 1 --lora-targets q_proj --seq-len 64 --threads 1 --ranks 2
  --micro-batch 8 --global-batch 16 --cluster "$work/slow.json")
plan "${adapters[@]}" --zero 1
ms=$(sed -nE 's/^a step of .*: ([0-9.]+) s, .*/\1/p' "$work/stdout" | awk '{ print 1000 * $1 }')
plan "${adapters[@]}" --layouts --top 1 --search-nodes 0 --recompute none
awk -v most="$ms" '$2 == "ms" { best = $1 } END { exit !(best > 0 && best < 1.01 * most) }' \
  "$work/stdout" || fail "adapters on a slow network: no layout as fast as --zero 1 in $ms ms"

# Most layouts with the best time bounds do not fit. A short search nevertheless finds one that
# fits, the same in both runs.
for times in 1 2; do
  plan --model llama3.1-70b --seq-len 8192 --ranks 256 --threads 1 --layouts --search-nodes 8 \
    --cluster h100
  [[ $code -eq 0 ]] || fail "70B in 8 plans: exit code $code"
  says ' layouts: 8 planned, '
  says ' were not evaluated'
  sed 's/; [0-9.]* s$//' "$work/stdout" >"$work/found$times"
done
cmp -s "$work/found1" "$work/found2" || fail "70B in 8 plans: the second search has another result"

plan --model nano --layers 1 --micro-batch 1 --ranks 2 --threads 1 --cluster "$clusters/cpu_host.json" \
  --measure --kernel-times "$work/times"
[[ $code -eq 0 ]] || fail "measured: exit code $code"
says '% measured'
grep -q '^[0-9.e-]* gemm ' "$work/times" || fail "measured: no time of a product in $work/times"
plan --model nano --cluster "$clusters/h100.json" --measure
[[ $code -eq 64 ]] || fail "a GPU's kernels on a CPU: exit code $code, expected 64"
plan --model nano --measure
[[ $code -eq 64 ]] || fail "--measure alone: exit code $code, expected 64"
plan --model nano --cluster "$work/none"
[[ $code -eq 66 ]] || fail "no such cluster: exit code $code, expected 66"
sed 's/bf16_tflops/bf16_flops/' "$clusters/h100.json" >"$work/cluster.json"
plan --model nano --cluster "$work/cluster.json"
[[ $code -eq 64 ]] || fail "an unknown field: exit code $code, expected 64"
for share in 1e-300 0 1.5; do
  sed "s/\"product_share\": [0-9.]*/\"product_share\": $share/" "$clusters/h100.json" \
    >"$work/cluster.json"
  plan --model nano --threads 1 --cluster "$work/cluster.json"
  [[ $code -eq 64 ]] || fail "product_share $share: exit code $code, expected 64"
  grep -qF 'a number in [0.001, 1]' "$work/stderr" ||
    fail "product_share $share: no word of its range"
done

# All-to-all of a balanced MoE in 48 layers: each of 4096 tokens goes to 8 of 128 experts and back,
# and 7/8 of the experts are on other ranks. Backward does the same, and repeats forward. At 360
# GB/s this takes 94 ms.
plan --model qwen3-30b-a3b --seq-len 4096 --micro-batch 1 --recompute full --dtype bf16 \
  --device cuda --ranks 8 --expert 8 --threads 1 --cluster "$clusters/h100.json"
# needs 90 GiB per GPU
[[ $code -eq 71 ]] || fail "experts on 8 ranks: exit code $code, expected 71"
awk '/waiting for other tensor/ { ms = $1 } END { exit !(ms >= 94 && ms <= 130) }' "$work/stdout" ||
  fail "experts on 8 ranks: $(grep 'waiting for other tensor' "$work/stdout"), expected 94 to 130 ms"
plan --model moe-nano --ranks 2 --expert 2 --capacity-factor 0.5 --threads 1
[[ $code -eq 0 ]] || fail "experts with little room: exit code $code"
plan --model moe-nano --ranks 8 --expert 4 --tensor 2 --context 2 --threads 1
[[ $code -eq 0 ]] || fail "experts beside other axes: exit code $code"
says 'rank 0 (shard 0, context 0, tensor 0): '

# ---- Failures ----
plan --model nano --ranks 16384 --device-mtbf 50700 --save-stall 10
[[ $code -eq 0 ]] || fail "failures: exit code $code"
says 'failures: one in 3.09448 h'
says '--save-minutes 7.75'
plan --model nano --device-mtbf 50700
[[ $code -eq 64 ]] || fail "saves that take no time: exit code $code, expected 64"

# ---- Impossible layouts ----
plan --ranks 6 --pipeline 4
[[ $code -eq 64 ]] || fail "6 ranks: exit code $code, expected 64"
plan --ranks 2 --rank 2
[[ $code -eq 64 ]] || fail "rank 2 of 2: exit code $code, expected 64"
grep -qF 'rank 2, expected 0 to 1' "$work/stderr" || fail "rank 2 of 2: no word of it"
plan --model nano --zero 3 --offload "nvme:$work/disk"
[[ $code -eq 64 ]] || fail "a disk: exit code $code, expected 64"
grep -qF 'plan --offload params' "$work/stderr" || fail "a disk: no word of what fits"
[[ ! -e $work/disk ]] || fail "a disk: its folder was made"
plan --model nano --device-memory 1MiB
[[ $code -eq 71 ]] || fail "1 MiB: exit code $code, expected 71"
says 'does not fit: rank 0 needs ' && says 'found 1.0 MiB per device'

# ---- What fits ----
# The first line says what to change. A run with each change, and one with the largest micro-batch,
# fits.
run=(--model nano --layers 4 --threads 1 --ranks 4 --device-memory 160MiB)
plan "${run[@]}" --micro-batch 16
[[ $code -eq 71 ]] || fail "160 MiB: exit code $code, expected 71"
line=$(head -n 1 "$work/stdout")
form='^does not fit: rank 0 needs [0-9]+ MiB, found 160 MiB per device; each of these is enough: '
form+='(.*); largest micro-batch that fits: ([0-9]+)$'
if [[ $line =~ $form ]]; then
  changes=${BASH_REMATCH[1]} largest=${BASH_REMATCH[2]}
  [[ $changes == '--recompute selective ('* ]] || fail "160 MiB: other changes: $changes"
  while read -r change; do
    read -ra flags <<<"${change% (*}"
    plan "${run[@]}" --micro-batch 16 "${flags[@]}"
    [[ $code -eq 0 ]] || fail "160 MiB with ${flags[*]}: exit code $code"
  done <<<"${changes//, /$'\n'}"
  ((largest < 16)) || fail "160 MiB: micro-batch 16 does not fit, expected a smaller one: $line"
  plan "${run[@]}" --micro-batch "$largest"
  [[ $code -eq 0 ]] || fail "160 MiB, micro-batch $largest: exit code $code"
  [[ $(head -n 1 "$work/stdout") =~ ^fits:\ [0-9.]+\ MiB\ of\ 160\ MiB\ per\ device\; ]] ||
    fail "160 MiB, micro-batch $largest: the first line does not say that it fits"
else
  fail "160 MiB: the first line is '$line'"
fi
# From a micro-batch of 2: a larger one fits, and twice that does not.
plan "${run[@]}" --micro-batch 2
[[ $code -eq 0 ]] || fail "micro-batch 2: exit code $code"
largest=$(sed -nE '1s/^fits: [0-9.]+ MiB of 160 MiB per device; largest micro-batch that fits: ([0-9]+)$/\1/p' \
  "$work/stdout")
((${largest:-0} > 2)) || fail "micro-batch 2: no larger one fits"
plan "${run[@]}" --micro-batch "${largest:-1}"
[[ $code -eq 0 ]] || fail "micro-batch $largest: exit code $code"
plan "${run[@]}" --micro-batch $((2 * ${largest:-1}))
[[ $code -eq 71 ]] || fail "twice the micro-batch $largest: exit code $code, expected 71"
# With a global batch, micro-batches divide it.
plan "${run[@]}" --micro-batch 16 --global-batch 64
[[ $(head -n 1 "$work/stdout") == *'; largest micro-batch that fits: 8' ]] ||
  fail "a global batch of 16 per rank: $(head -n 1 "$work/stdout")"
finish
