#!/usr/bin/env bash
# Tests the recipes. Each recipe is read by its program at both scales, its small scale trains, and
# flags override it. The mixture-of-experts recipe has the same losses on eight ranks as on one.
# Also tests plans of recipes, and the classes and accuracies of a trained image classifier.
source "$(dirname "${BASH_SOURCE[0]}")/../support/cli.sh"
shown=("$work/output")
shale="$BIN_DIR/shale"
recipes=$(cd "$(dirname "${BASH_SOURCE[0]}")/../../deploy/recipes" && pwd)
pages=$(cd "$(dirname "${BASH_SOURCE[0]}")/../../docs/recipes" && pwd)
cd "$work" || exit 1
export OMPI_MCA_rmaps_base_oversubscribe=1

# run COMMAND...: it must succeed, within two minutes.
run() { launch 1 "$@" >output 2>&1 || fail "$*: exit code $?"; }
# option NAME: prints the value of an option in the output of --print-config.
option() { sed -nE "s/^  \"$1\": (.*[^,]),?\$/\1/p" output; }

# settings NAME: prints "OPTION FULL SMALL" of the table in the recipe's page; "-" for an empty cell.
settings() {
  cat "$pages"/*.md | awk -F ' *[|] *' -v title="## Settings of \`$1\`" '
    /^## / { inside = $0 == title }
    inside && $2 ~ /^`--/ {
      gsub(/`|--/, "", $2)
      gsub("-", "_", $2)
      print $2, $3 == "" ? "-" : $3, $4 == "" ? "-" : $4
    }'
}
# differing COLUMN: prints the rows of `table` whose COLUMN differs from the options in the output.
differing() {
  local name full small shown
  while read -r name full small; do
    shown=$full
    [[ $1 == small ]] && shown=$small
    [[ $shown == - || $name == data ]] || printf '%s %s %s\n' "$name" "$shown" "$(option "$name" | tr -d '"')"
  done <table | awk '$2 != $3 { print }  # numbers are compared as numbers
    END { exit NR == 0 }'
}

for file in "$recipes"/*.json; do
  name=$(basename "$file" .json)
  program=$(sed -nE 's/^ *"program": "(.*)",?/\1/p' "$file")
  settings "$name" >table
  for scale in full small; do
    run "$BIN_DIR/$program" --recipe "$name" --scale $scale --data nowhere --print-config
    [[ $(option recipe) == "\"$name\"" && $(option steps) -ge 40 ]] || fail "$name, $scale: $(head -n 3 output)"
    differs=$(differing $scale) || fail "$name: no table of its settings in docs/recipes"
    [[ -z $differs ]] || fail "docs/recipes, $name, $scale scale, option, page, program: $differs"
  done
  # Every option of the file is in the table.
  sed -nE 's/^    "([a-z0-9_]+)": .*/\1/p' "$file" | sort -u >options
  cut -d ' ' -f 1 table | sort -u | cmp -s - options || fail "docs/recipes: not the options of $name"
done
run "$BIN_DIR/train_lm" --recipe=gpt2-124m --scale=small --steps 7 --print-config
[[ $(option steps) == 7 && $(option seq_len) == 128 && $(option weight_decay) == 0.1 ]] ||
  fail 'flags do not override a recipe'
echo '{"seq_len": 64, "recipe": "none"}' >own.json
run "$BIN_DIR/train_lm" --recipe gpt2-124m --config own.json --print-config
[[ $(option seq_len) == 64 && $(option steps) == 19073 ]] || fail '--config does not override a recipe'

# refused WORD COMMAND...: exit code 64 and an error with WORD.
refused() {
  "${@:2}" >output 2>&1
  local code=$?
  [[ $code -eq 64 ]] && grep -qF -- "$1" output || fail "${*:2}: exit code $code"
}
refused 'expected one of none, ' "$BIN_DIR/train_lm" --recipe gpt3
refused 'expected one of none, ' "$BIN_DIR/train_image" --recipe gpt2-124m --data shapes
refused 'has no effect without --recipe' "$BIN_DIR/train_lm" --scale small --data nowhere

# ---- The small scales, cut to a few steps ----
perl -e 'srand(5); open(my $t, ">", "text.txt") or die;
  print $t "a line of words ", int(rand(100)), "\n" for 1 .. 2000;
  open(my $c, ">", "chats.jsonl") or die;
  for (1 .. 80) { my $x = int(rand(50));
    print $c "{\"messages\":[{\"role\":\"user\",\"content\":\"$x?\"},{\"role\":\"assistant\",\"content\":\"word $x\"}]}\n" }'
run "$shale" tokenizer train text.txt --vocab 400 --out tokenizer.json \
  --special "<|endoftext|>,<|im_start|>,<|im_end|>"
run "$shale" tokenize text.txt --tokenizer tokenizer.json --out tokens --val-fraction 0.1
train=("$BIN_DIR/train_lm" --scale small --threads 1)
short=(--steps 4 --warmup-steps 1 --eval-every 4 --eval-samples 8)
run "${train[@]}" --recipe gpt2-124m --data tokens "${short[@]}" --out gpt2
run "${train[@]}" --recipe chat-30m --data tokens "${short[@]}" --out base
run "${train[@]}" --recipe chat-30m-sft --data chats.jsonl --init base "${short[@]}" --out chat
run "$shale" generate chat --chat --prompt "3?" --tokens 4
run "$BIN_DIR/train_lm" --model qwen3-0.6b --layers 2 --width 64 --heads 4 --kv-heads 2 --hidden 96 \
  --vocab 400 --data tokens --seq-len 64 --steps 2 --micro-batch 4 --threads 1 --no-save --export qwen3
run "${train[@]}" --recipe qwen3-0.6b-lora --data chats.jsonl --init qwen3 "${short[@]}" --out tuned
run "$shale" ckpt export tuned --out tuned.gguf --to gguf --dtype q8_0

# Compares one rank with eight ranks: two along each of the axes for experts, for sequences and for
# ZeRO.
moe=("$BIN_DIR/train_lm" --recipe qwen3-30b-a3b-sft --scale small --data chats.jsonl --vocab 400
  --tokenizer tokenizer.json --threads 1 "${short[@]}" --no-save --global-batch 4)
launch 8 "${moe[@]}" --out moe8 >output 2>&1 || fail "eight ranks of a mixture: exit code $?"
run "${moe[@]}" --expert 1 --context 1 --zero 0 --out moe1
losses() { grep -oE '"(val_)?loss": [0-9.]+' "$1/metrics.jsonl" | sed 's/.*: //'; }
paste <(losses moe8) <(losses moe1) | awk '{ d = $1 - $2; if (d * d > 1e-8 || NF != 2) bad = 1 }
  END { exit NR != 5 || bad }' || fail "other losses on eight ranks: $(losses moe8 | tr '\n' ' ')"

# ---- Images: a run, its checkpoint and its export classify alike ----
for part in train val; do
  for class in cat dog; do
    mkdir -p "pets/$part/$class"
    for i in 1 2 3 4; do printf "$png_pixel" >"pets/$part/$class/$i.png"; done
  done
done
run "$BIN_DIR/train_image" --recipe vit-l16 --scale small --data pets --steps 2 --warmup-steps 1 \
  --global-batch 8 --micro-batch 8 --threads 1 --eval-every 2 --out vit --export vit_timm
val=$(sed -nE 's/.*"val_loss": ([0-9.]+), .*"val_top1": ([0-9.]+), .*/\1 \2/p' vit/metrics.jsonl)
for model in vit vit/checkpoints/step_00000002 vit_timm; do
  launch 2 "$shale" evaluate $model --data pets --batch 3 --json >output 2>&1 || fail "evaluate $model: $?"
  read -r loss top1 < <(sed -nE 's/.*"loss": ?([0-9.]+).*"top1": ?([0-9.]+).*/\1 \2/p' output)
  awk -v a="$val" -v l="$loss" -v t="$top1" 'BEGIN { split(a, v, " "); d = v[1] - l
    exit !(l > 0 && d * d < 1e-10 && v[2] == t && t == 0.5) }' || fail "$model: $loss $top1, the run had $val"
  run "$shale" classify $model pets/val/cat/1.png pets/val/dog/2.png
  [[ $(grep -cE '^pets/val/(cat/1|dog/2).png: (cat|dog) [0-9.]+%, (cat|dog) [0-9.]+%$' output) -eq 2 ]] ||
    fail "classify $model"
done
mkdir -p birds/owl birds/cat
for class in owl cat; do printf "$png_pixel" >birds/$class/1.png; done
"$shale" evaluate vit --data birds >output 2>&1
[[ $? -eq 65 ]] && grep -q 'found owl' output || fail "a class that the model does not have"
refused 'expected a model and pictures' "$shale" classify vit
run "$BIN_DIR/train_diffusion" --recipe dit-shapes --scale small --steps 2 --eval-every 2 --samples 2 \
  --sample-steps 2 --eval-samples 16 --threads 1 --out dit

# ---- Plans ----
run "$shale" plan --recipe qwen3-30b-a3b-sft --ranks 16
grep -q '^rank 0 (.*): [0-9.]* GiB in use at the peak' output || fail "no plan of the mixture"
run "$shale" plan --recipe vit-l16 --data shapes --ranks 8
grep -q 'vit-l16: 30[0-9]* parameters' output && grep -q '^rank 0 .* GiB in use' output ||
  fail "no plan of images"
refused 'found one of train_image' "$shale" plan --recipe vit-l16 --data shapes --layouts

finish
