#!/usr/bin/env bash
# Tests fine-tuning on conversations and preferences, with and without adapters, on several ranks,
# stopped and resumed, merged and exported; and errors on wrong input.
source "$(dirname "${BASH_SOURCE[0]}")/../support/cli.sh"
shown=("$work/output")

train="$BIN_DIR/train_lm"
shale="$BIN_DIR/shale"
cd "$work" || exit 1
perl -e 'srand(5); open(my $t, ">", "text.txt") or die;
  print $t "a line of words ", int(rand(100)), "\n" for 1 .. 300;
  open(my $c, ">", "chats.jsonl") or die; open(my $p, ">", "pairs.jsonl") or die;
  for (1 .. 120) { my ($x, $n) = (int(rand(50)), 1 + int(rand(12)));
    my $long = join(" ", ("word") x $n);
    print $c "{\"messages\":[{\"role\":\"system\",\"content\":\"Be brief.\"},",
      "{\"role\":\"user\",\"content\":\"$x?\"},{\"role\":\"assistant\",\"content\":\"$long $x\"}]}\n";
    print $p "{\"prompt\":\"q $x:\",\"chosen\":\" good $x\",\"rejected\":\" bad $long\"}\n" }'
"$shale" tokenizer train text.txt --vocab 300 --out tokenizer.json \
  --special "<|endoftext|>,<|im_start|>,<|im_end|>" >output 2>&1 || { fail "no tokenizer"; finish; }
"$train" --data text.txt --tokenizer tokenizer.json --model llama-nano --layers 2 --width 32 \
  --heads 2 --kv-heads 1 --hidden 48 --seq-len 48 --steps 3 --threads 1 --out base \
  --export base_hf >output 2>&1 || { fail "no model to begin with"; finish; }

"$shale" tokenizer train text.txt --vocab 400 --out larger.json \
  --special "<|endoftext|>,<|im_start|>,<|im_end|>,$(seq -s, -f '<%g>' 140)" >output 2>&1 ||
  fail "no larger tokenizer"

common=(--init base_hf --seq-len 48 --global-batch 8 --micro-batch 1 --threads 1 --keep 0 --lr 1e-2)

# run PROCESSES OUT FLAGS...: sets `code` to the exit code.
run() {
  launch "$1" "$train" "${common[@]}" --out "$2" "${@:3}" >output 2>&1
  code=$?
  [[ $code -eq 0 ]] || fail "$2: exit code $code"
}
bits() { sed -nE 's/^\{"step": ([0-9]+), .*"loss_bits": ("[0-9a-f]*").*/\1 \2/p' "$1/metrics.jsonl"; }
losses() { sed -nE 's/^\{"step": [0-9]+, "loss": ([0-9.e-]+).*/\1/p' "$1/metrics.jsonl"; }
same_bits() { [[ -n $(bits "$1") && $(bits "$1") == "$(bits "$2")" ]] || fail "$1 and $2 have other losses"; }
validations() { sed -nE 's/.*"val_loss": ([0-9.e-]+).*/\1/p' "$1/metrics.jsonl"; }
falls() { losses "$1" | awk 'NR <= 3 { a += $1 } { l[NR] = $1 } END { exit !(l[NR] + l[NR-1] + l[NR-2] < a) }' ||
  fail "the loss of $1 does not fall: $(losses "$1" | tr '\n' ' ')"; }

near() { awk -v a="$1" -v b="$2" 'BEGIN { exit !(a > 0 && (a / b - 1) ^ 2 < 1e-10) }'; }

lora=(--task sft --data chats.jsonl --lora-rank 4 --lora-dropout 0.1)
run 1 sft --task sft --data chats.jsonl --steps 12 --eval-every 6
falls sft
# Ranks have different numbers of target tokens, and ZeRO stages shard memory differently. Losses
# must be bit-identical nevertheless.
run 1 lora1 "${lora[@]}" --steps 12 --reproducible --save-every 6
falls lora1
run 2 lora2 "${lora[@]}" --steps 12 --reproducible --zero 3
same_bits lora1 lora2
run 2 lora3 "${lora[@]}" --steps 12 --reproducible --zero 2 --offload optimizer --recompute full
same_bits lora1 lora3
run 2 again "${lora[@]}" --steps 12 --reproducible --resume lora1/checkpoints/step_00000006 --zero 1
[[ $(bits again) == "$(bits lora1 | tail -n 6)" ]] || fail "a resumed run has other losses"
# Only adapters have optimizer states; frozen base weights have none.
"$shale" ckpt inspect lora1 >output 2>&1 || fail "inspect"
grep -qF "layers.0.self_attn.q_proj.lora_A.weight/m" output || fail "no state of an adapter"
grep -qF "layers.0.self_attn.q_proj.weight/m" output && fail "a state of a frozen weight"

# Exports adapters, imports them again, and merges them.
run 2 out1 "${lora[@]}" --steps 2 --export peft
for file in adapter_config.json adapter_model.safetensors tokenizer.json tokenizer_config.json; do
  [[ -s peft/$file ]] || fail "no peft/$file"
done
grep -qF "<|im_start|>" peft/tokenizer_config.json || fail "no chat template beside the adapters"
run 1 out2 --task sft --data chats.jsonl --lora-init peft --steps 1 --lr 0 --lora-alpha 8
"$shale" ckpt export out1 --out merged >output 2>&1 || fail "export of a checkpoint"
run 1 out3 --task sft --data chats.jsonl --init merged --chat-template chatml --steps 1 --lr 0
near "$(losses out3)" "$(losses out2)" || fail "the merged model and its adapters have other losses"
near "$(losses out3)" "$(losses sft | head -n 1)" && fail "the merged model is the base model"

# Checkpoints and exports keep a model's own chat template.
cp -r base_hf own_hf
printf '%s' '{% for m in messages %}[{{ m.role }}]{{ m.content }}<|im_end|>{% endfor %}' \
  '{% if add_generation_prompt %}[assistant]{% endif %}' >own_hf/chat_template.jinja
timeout 60 "$train" "${common[@]/base_hf/own_hf}" --out own --task sft --data chats.jsonl --steps 2 \
  --export own_out >output 2>&1 || fail "a model's own template: exit code $?"
"$shale" ckpt export own --out own_again >output 2>&1 || fail "export of a run with a template"
for folder in own/checkpoints/step_00000002 own_out own_again; do
  "$JSON_VALUE" "$folder/tokenizer_config.json" /chat_template >output 2>&1
  grep -qF '[{{ m.role }}]' output || fail "$folder has no chat template"
done
"$shale" ckpt export own --out own.gguf --to gguf >output 2>&1 || fail "GGUF with a template"
grep -qaF 'tokenizer.chat_template' own.gguf || fail "own.gguf has no chat template"
"$shale" generate own --chat --prompt "2?" --tokens 4 >output 2>&1 || fail "generate with a template"

# Trains with context and pipeline parallelism.
shared=(--task sft --data chats.jsonl --lora-rank 4 --steps 6)
last() { losses "$1" | tail -n 1; }
run 1 whole "${shared[@]}"
for axis in context pipeline; do
  run 2 "$axis" "${shared[@]}" "--$axis" 2
  awk -v a="$(last whole)" -v b="$(last "$axis")" 'BEGIN { d = a - b; exit !(a > 0 && d * d < 1e-8) }' ||
    fail "--$axis 2: the last loss is $(last "$axis"), expected $(last whole)"
done

# Quantized frozen weights give bit-identical results: for every memory placement, after a resume,
# and after an export.
"$train" --data text.txt --tokenizer tokenizer.json --model llama-nano --layers 2 --width 64 \
  --heads 2 --kv-heads 1 --hidden 128 --seq-len 48 --steps 3 --threads 1 --out wide \
  --export wide_hf >output 2>&1 || fail "no wider model"
nf4=(--init wide_hf --task sft --data chats.jsonl --lora-rank 4 --reproducible --frozen-dtype nf4)
run 1 nf1 "${nf4[@]}" --steps 12 --save-every 6 --eval-every 12
falls nf1
run 2 nf2 "${nf4[@]}" --steps 12 --zero 3
same_bits nf1 nf2
run 2 nf3 "${nf4[@]}" --steps 12 --zero 2 --offload optimizer --recompute full
same_bits nf1 nf3
run 2 nf4 "${nf4[@]}" --steps 12 --resume nf1/checkpoints/step_00000006 --zero 3
[[ $(bits nf4) == "$(bits nf1 | tail -n 6)" ]] || fail "a run of 4 bits that is resumed has other losses"
"$shale" ckpt export nf1 --out nf_merged >output 2>&1 || fail "export of 4 bits"
run 1 nf5 --task sft --data chats.jsonl --init nf_merged --chat-template chatml --steps 1 --lr 0 \
  --eval-every 1
near "$(validations nf5)" "$(validations nf1)" || fail "4 bits, merged, have another validation loss"
"$shale" generate nf1 --prompt "a line" --tokens 4 >output 2>&1 || fail "generate of 4 bits"
run 1 i8 "${nf4[@]}" --frozen-dtype int8 --steps 2
run 1 b16 "${nf4[@]}" --frozen-dtype bf16 --steps 2
"$shale" plan --init wide_hf --task sft --lora-rank 4 --frozen-dtype nf4 --seq-len 48 --ranks 2 \
  --zero 3 --threads 1 >output 2>&1 || fail "a plan of 4 bits"

# Trains on preferences.
run 1 dpo1 --task dpo --data pairs.jsonl --steps 12 --reproducible --save-every 6 --eval-every 12 \
  --lr 1e-3
falls dpo1
losses dpo1 | head -n 1 | awk '{ exit !($1 > 0.6931 && $1 < 0.6932) }' ||
  fail "the first loss is $(losses dpo1 | head -n 1), expected log 2"
run 2 dpo2 --task dpo --data pairs.jsonl --steps 12 --reproducible --zero 3 --lr 1e-3 --eval-every 12
same_bits dpo1 dpo2
run 1 dpo3 --task dpo --data pairs.jsonl --steps 12 --reproducible --lr 1e-3 --eval-every 12 \
  --resume dpo1/checkpoints/step_00000006
# Prints figures of the last validation: accuracy, reward of the chosen answers, margin, reward of
# the rejected answers.
figures() {
  grep -oE '"val_(accuracy|margin|chosen_reward|rejected_reward)": [^,}]+' "$1/metrics.jsonl" |
    tail -n 4 | sed 's/.*: //' | tr '\n' ' '
}
awk '{ d = $2 - $4 - $3; exit !(NF == 4 && $1 > 0.5 && $1 <= 1 && $3 > 0 && d * d < 1e-6) }' \
  <<<"$(figures dpo1)" || fail "accuracy, rewards and margin of preferences: $(figures dpo1)"
[[ $(figures dpo1) == "$(figures dpo2)" && $(figures dpo1) == "$(figures dpo3)" ]] ||
  fail "figures of preferences: $(figures dpo1), with two ranks $(figures dpo2), resumed $(figures dpo3)"
[[ $(bits dpo3) == "$(bits dpo1 | tail -n 6)" ]] || fail "resumed preferences have other losses"
run 1 dpo4 --task dpo --data pairs.jsonl --steps 3 --lora-rank 2

# refused CODE WORD FLAGS...: the run ends with exit code CODE and an error that contains WORD.
refused() {
  local want=$1 word=$2 got
  shift 2
  timeout 60 "$train" "${common[@]}" --steps 1 --out refused "$@" >output 2>&1
  got=$?
  [[ $got -eq $want ]] || fail "$*: exit code $got, expected $want"
  grep -qF -- "$word" output || fail "$*: it does not say '$word'"
}
echo '{"messages":[{"role":"user","content":"hi"}]}' >silent.jsonl
echo '{"messages":[{"role":"king","content":"hi"}]}' >king.jsonl
echo '{"messages":' >broken.jsonl
printf '{"prompt":"caf\xe9","completion":"x"}\n' >latin1.jsonl
gzip -c chats.jsonl | head -c 300 >truncated.jsonl.gz
perl -e 'print "{\"text\":\"", "a" x (100 << 20), "\"}\n"' >line.jsonl
refused 65 "latin1.jsonl:1" --task sft --data latin1.jsonl
refused 65 "truncated.jsonl.gz" --task sft --data truncated.jsonl.gz
refused 65 "line.jsonl:1: the line has more than 64.0 MiB" --task sft --data line.jsonl
refused 64 "--init base_hf has base_hf/tokenizer.json of 300 tokens" --task sft --data chats.jsonl --tokenizer larger.json
refused 64 "a row length that is a multiple of 64" --task sft --data chats.jsonl --lora-rank 2 \
  --frozen-dtype nf4
refused 65 "silent.jsonl:1: nothing to train on" --task sft --data silent.jsonl
refused 65 "king.jsonl:1: expected the role system, user, assistant or tool, found 'king'" --task sft --data king.jsonl
refused 65 "broken.jsonl:1" --task sft --data broken.jsonl
refused 66 "nowhere.jsonl" --task sft --data nowhere.jsonl
refused 65 "no token <|start_header_id|>" --task sft --data chats.jsonl --chat-template llama3
refused 64 "'c_attn'" --task sft --data chats.jsonl --lora-rank 2 --lora-targets c_attn
refused 66 "adapter_config.json" --task sft --data chats.jsonl --lora-init base_hf
refused 64 "--packing concat" --task sft --data chats.jsonl --packing concat
refused 64 "--loss-chunk" --task dpo --data pairs.jsonl --loss-chunk 8
refused 65 "no 'chosen'" --task dpo --data chats.jsonl
refused 64 "--tokenizer" --task sft --data chats.jsonl --tokenizer none

finish
