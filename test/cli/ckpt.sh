#!/usr/bin/env bash
# Tests shale ckpt on checkpoints written by training: output, files and exit code of each action,
# and errors on wrong input.
source "$(dirname "${BASH_SOURCE[0]}")/../support/cli.sh"

train="$BIN_DIR/train_lm"
shale="$BIN_DIR/shale"
fixtures="$(cd "$(dirname "${BASH_SOURCE[0]}")/../fixtures" && pwd)"
cases=0

# expect CODE WORDS... -- ARGUMENTS...: checks the exit code and that the output contains the words;
# an error must be one line.
expect() {
  local code=$1 words=()
  shift
  while [[ $1 != -- ]]; do words+=("$1"); shift; done
  shift
  cases=$((cases + 1))
  timeout 60 "$shale" "$@" >"$work/stdout" 2>"$work/stderr"
  local got=$? bad="" lines
  [[ $got -eq $code ]] || bad+=" exit code $got, expected $code;"
  lines=$(grep -c 'error:' "$work/stderr")
  if [[ $code -ge 64 ]]; then
    [[ $lines -eq 1 ]] || bad+=" $lines error lines, expected 1;"
  else
    [[ ! -s $work/stderr ]] || bad+=" it prints errors;"
  fi
  for word in "${words[@]}"; do
    grep -qF -- "$word" "$work/stdout" "$work/stderr" || bad+=" it does not say '$word';"
  done
  if [[ -n $bad ]]; then
    failures=$((failures + 1))
    echo "FAILED: shale $*:$bad"
    head -n 5 "$work/stdout" "$work/stderr" | sed 's/^/    /'
  fi
}
same() {
  cases=$((cases + 1))
  cmp -s "$1" "$2" || { failures=$((failures + 1)); echo "FAILED: $1 and $2 differ"; }
}

# ---- A run that saves twice, on two ranks ----

for i in $(seq 2000); do echo "line $i of a text that is long enough"; done >"$work/text.txt"
run=(mpirun --oversubscribe --bind-to none -np 2 "$train" --data "$work/text.txt" --layers 2
     --seq-len 32 --micro-batch 2 --device cpu --threads 1 --zero 2)
"${run[@]}" --steps 4 --save-every 2 --keep 2 --out "$work/out" --export "$work/exported" \
  >"$work/log" 2>&1 || { echo "FAILED: train_lm"; tail -n 5 "$work/log"; exit 1; }
last="$work/out/checkpoints/step_00000004"
before="$work/out/checkpoints/step_00000002"

# ---- Inspecting ----

expect 0 "Usage" "inspect" "verify" "reshard" "export" "diff" -- ckpt --help
for action in inspect verify reshard export diff; do
  expect 0 "--help" "shale ckpt $action" -- ckpt "$action" --help
done
expect 0 "step 4" "wte.weight" "fp32" "shard_00001_of_00002.safetensors" "samples" "model shape" \
  -- ckpt inspect "$work/out"
expect 0 "step 2" -- ckpt inspect "$before"
expect 0 '"step": 4' '"wte.weight/m"' -- ckpt inspect "$work/out" --json
[[ $("$JSON_VALUE" "$work/stdout" '/config/model shape/layers') == 2 ]] ||
  { failures=$((failures + 1)); echo "FAILED: inspect --json does not have the model's layers"; }
expect 0 "ok" "shard_00001_of_00002" "step 4" -- ckpt verify "$work/out/checkpoints"

# ---- Converting ----

expect 0 "wrote" "step_00000004" -- ckpt reshard "$last" --ranks 5 --out "$work/five"
expect 0 "shard_00004_of_00005" -- ckpt verify "$work/five"
expect 0 "0 tensors of" -- ckpt diff "$last" "$work/five"
expect 1 "wte.weight" "elements, by at most" -- ckpt diff "$before" "$last"
expect 1 '"max_abs"' -- ckpt diff "$before" "$last" --json
expect 64 "already exists" -- ckpt reshard "$last" --ranks 5 --out "$work/five"

# The exported files equal those that train_lm wrote at the same step, split into files as
# requested.
expect 0 "wrote" -- ckpt export "$work/five" --out "$work/model"
same "$work/model/model.safetensors" "$work/exported/model.safetensors"
same "$work/model/config.json" "$work/exported/config.json"
expect 0 "wrote" -- ckpt export "$last" --out "$work/split" --shard-size 300KiB --dtype bf16
[[ -e $work/split/model.safetensors.index.json ]] || { failures=$((failures + 1)); echo "FAILED: no index"; }

# A folder for torch.distributed.checkpoint starts a run with the same weights.
expect 0 "wrote" -- ckpt export "$last" --out "$work/dcp" --to dcp
expect 64 "already has a model in model.safetensors" -- ckpt export "$last" --out "$work/model" --to dcp
"$train" --data "$work/text.txt" --init "$work/dcp" --steps 0 --seq-len 32 --micro-batch 2 --device cpu \
  --threads 1 --out "$work/of_dcp" --export "$work/from_dcp" >"$work/log" 2>&1 ||
  { failures=$((failures + 1)); echo "FAILED: --init of a DCP folder"; tail -n 3 "$work/log"; }
same "$work/from_dcp/model.safetensors" "$work/exported/model.safetensors"
# PyTorch has read a folder with the same bytes (test/oracles/dcp.py).
mkdir "$work/tokens"
perl -e 'print pack("v*", map { $_ % 16 } 0 .. 3999)' >"$work/tokens/train.bin"
head -c 800 "$work/tokens/train.bin" >"$work/tokens/val.bin"
for name in llmc llmc_llama; do
  "$train" --data "$work/tokens" --init "$fixtures/checkpoints/${name}_fp32.bin" --steps 1 --lr 0 \
    --save-every 1 --seq-len 8 --micro-batch 1 --device cpu --threads 1 --out "$work/$name" >"$work/log" 2>&1
  expect 0 "wrote" -- ckpt export "$work/$name" --out "$work/${name}_dcp" --to dcp
  for file in .metadata __0_0.distcp; do
    sum=$(sha256sum "$work/${name}_dcp/$file" | cut -c 1-16)
    grep -qxF "${name}_$file $sum" "$fixtures/../oracles/dcp.txt" ||
      { failures=$((failures + 1)); echo "FAILED: other bytes than PyTorch has read: ${name}_dcp/$file"; }
  done
done
# A pickle that asks for more than tensors is refused, and the error names what it asks for.
expect 65 "uses torch.nn.modules.container.Sequential" \
  -- generate "$fixtures/checkpoints/module.pt" --prompt x

# ---- Wrong input ----

expect 64 "expected an action" -- ckpt
expect 64 "inspekt" "inspect" -- ckpt inspekt "$last"
expect 64 "checkpoint" -- ckpt inspect
expect 64 "--jsom" "--json" -- ckpt inspect "$last" --jsom
expect 64 "--ranks" "0" -- ckpt reshard "$last" --ranks 0 --out "$work/six"
expect 64 "--out" -- ckpt reshard "$last" --ranks 2
expect 64 "--dtype" "fp8" -- ckpt export "$last" --out "$work/x" --dtype fp8
expect 64 "needs a run of train_image or train_diffusion" "--to hf" -- \
  ckpt export "$last" --out "$work/x.onnx" --to onnx
expect 66 "nowhere" -- ckpt inspect "$work/nowhere"
expect 66 "exported" -- ckpt verify "$work/exported"
expect 66 "nowhere" -- ckpt diff "$last" "$work/nowhere"

# ---- Damage: each kind is detected and its file named ----

damaged() { rm -rf "$work/damaged"; cp -r "$last" "$work/damaged"; }
flip() { perl -e 'open(my $f, "+<:raw", $ARGV[0]) or die; seek($f, $ARGV[1], 0); read($f, my $c, 1);
                  seek($f, $ARGV[1], 0); print $f chr(ord($c) ^ 1);' "$@"; }
shard=shard_00001_of_00002.safetensors
damaged; flip "$work/damaged/$shard" 100000
expect 65 "damaged  $shard" "ok       shard_00000" "chunk 0" -- ckpt verify "$work/damaged"
expect 65 "$shard" -- ckpt reshard "$work/damaged" --ranks 3 --out "$work/from_damaged"
[[ -z $(ls "$work/from_damaged/checkpoints") ]] || { failures=$((failures + 1)); echo "FAILED: a reshard that failed left files"; }
expect 65 "$shard" -- ckpt diff "$last" "$work/damaged"
damaged; flip "$work/damaged/manifest.json" 50
expect 65 "manifest.json" -- ckpt inspect "$work/damaged"
damaged; truncate -s -1 "$work/damaged/$shard"
expect 65 "$shard" -- ckpt verify "$work/damaged"
damaged; rm "$work/damaged/$shard"
expect 66 "$shard" -- ckpt verify "$work/damaged"

[[ $cases -gt 0 ]] || fail "no case ran"
finish "$cases passed"
