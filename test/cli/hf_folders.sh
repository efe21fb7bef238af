#!/usr/bin/env bash
# Tests that a model is unchanged after it is exported to a Hugging Face folder and imported again:
# as one file or several, and from one rank or from two that hold half each.
source "$(dirname "${BASH_SOURCE[0]}")/../support/cli.sh"

train="$BIN_DIR/train_lm"
fixtures=$(cd "$(dirname "${BASH_SOURCE[0]}")/../fixtures" && pwd)
# run NAME LAUNCHER... -- FLAGS...: runs train_lm with output folder NAME.
run() {
  local name=$1 launcher=()
  shift
  while [[ $1 != -- ]]; do launcher+=("$1"); shift; done
  shift
  timeout 120 ${launcher[@]+"${launcher[@]}"} "$train" --data "$work/text.txt" --layers 2 --seq-len 32 \
    --micro-batch 2 --global-batch 4 --device cpu --threads 1 --out "$work/out_$name" "$@" \
    >"$work/log_$name" 2>&1 || { fail "$name: exit code $?"; tail -n 5 "$work/log_$name"; }
}
loss_bits() { grep -o '"loss_bits": "[0-9a-f]*"' "$work/out_$1/metrics.jsonl"; }

for i in $(seq 2000); do echo "line $i of a text that is long enough"; done >"$work/text.txt"

two=(mpirun --oversubscribe --bind-to none -np 2)
run whole -- --steps 2 --export "$work/whole"
run parts "${two[@]}" -- --steps 2 --zero 3 --export "$work/parts" --export-shard-size 300KiB

[[ -e $work/whole/model.safetensors && ! -e $work/whole/model.safetensors.index.json ]] \
  || fail "a small model is one file"
parts=("$work"/parts/model-*-of-*.safetensors)
[[ ${#parts[@]} -gt 2 && ! -e $work/parts/model.safetensors ]] || fail "a limit makes several files"
for part in "${parts[@]}"; do
  # No parameter of this model exceeds 256 KiB, so a file exceeds the limit by at most its header.
  [[ $(stat -c %s "$part") -le $((300 * 1024 + 4096)) ]] || fail "$part is above the limit"
done
grep -q '"total_size"' "$work/parts/model.safetensors.index.json" || fail "the index has a size"

# Two ranks add gradients in another order than one rank, so their models differ. Each model must
# equal its own re-export.
run again -- --steps 0 --init "$work/parts" --export "$work/again"
run back "${two[@]}" -- --steps 0 --zero 3 --init "$work/again" --export "$work/back" --export-shard-size 300KiB
for file in "$work"/parts/*; do
  cmp -s "$file" "$work/back/$(basename "$file")" || fail "$(basename "$file") changed on the way"
done

run from_many -- --steps 2 --init "$work/parts"
run from_one -- --steps 2 --init "$work/again"
[[ -n $(loss_bits from_many) && $(loss_bits from_many) == "$(loss_bits from_one)" ]] \
  || fail "training goes on from both with the same losses"

# Refuses a preset that does not match the stored model.
"$train" --data "$work/text.txt" --init "$work/again" --model gpt2-124m --seq-len 32 \
  --out "$work/out_bad" >"$work/log" 2>&1
[[ $? -eq 64 && ! -e $work/out_bad ]] &&
  grep -q "model gpt2-124m is gpt2 of 12 layers, width 768, 12 heads, the model in" "$work/log" ||
  fail "another --model than the stored one is refused, code 64: $(tail -n 1 "$work/log")"

# Refuses a missing file, and a truncated one.
missing=("$work"/back/model-00002-of-*.safetensors)
mv "${missing[0]}" "$work/elsewhere"
"$train" --data "$work/text.txt" --init "$work/back" --seq-len 32 --out "$work/out_bad" >"$work/log" 2>&1
[[ $? -eq 66 ]] && grep -q "model-00002-of" "$work/log" || fail "a missing file is named, code 66"
head -c 1000 "$work/elsewhere" >"${missing[0]}"
"$train" --data "$work/text.txt" --init "$work/back" --seq-len 32 --out "$work/out_bad" >"$work/log" 2>&1
[[ $? -eq 65 ]] && grep -q "model-00002-of" "$work/log" || fail "a cut file is named, code 65"

# A folder's other files say which tokens end a text, and how conversations are formatted.
cd "$work" || exit 1
shown=("$work/output")
value() { "$JSON_VALUE" "$1" "$2" 2>>"$work/output"; }
want() {  # arguments: FILE POINTER VALUE
  local got
  got=$(value "$1" "$2")
  [[ $got == "$3" ]] || fail "$1 has '$got' at $2, expected '$3'"
}
"$BIN_DIR/shale" tokenizer train text.txt --vocab 300 --out tokenizer.json \
  --special "<|begin_of_text|>,<|endoftext|>,<|im_start|>,<|im_end|>,<pad>,<turn|>" >output 2>&1 ||
  { fail "no tokenizer"; finish; }
id() { value tokenizer.json "/model/vocab/$1"; }
end=$(id '<|endoftext|>') turn=$(id '<|im_end|>') pad=$(id '<pad>')
small=(--seq-len 48 --micro-batch 1 --steps 1 --layers 1 --width 32 --heads 4 --threads 1)
# quiet NAME FLAGS...: trains into out_NAME and exports to NAME.
quiet() {
  timeout 120 "$train" "${@:2}" --out "out_$1" --export "$1" >output 2>&1 || fail "$1: exit code $?"
}
# A model trained from scratch ends texts with the tokenizer's token, in every family.
for model in nano llama-nano moe-nano; do
  quiet "$model" --data text.txt --tokenizer tokenizer.json --model "$model" "${small[@]}"
  want "$model/config.json" /eos_token_id "$end"
  want "$model/tokenizer_config.json" /eos_token '"<|endoftext|>"'
done
# A published model keeps its own end tokens through training, checkpoints and a resumed run.
cp -r llama-nano published
sed -i "s/\"eos_token_id\": $end/\"eos_token_id\": $turn/; s/\"initializer_range\": 0.02/\"initializer_range\": 0.5/" \
  published/config.json
echo "{\"eos_token_id\": [$turn, $end], \"temperature\": 0.6}" >published/generation_config.json
echo '{"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": {"content": "<|im_end|>"}, "pad_token": "<pad>", "model_max_length": 1e30}' \
  >published/tokenizer_config.json
echo '{"eos_token": "<|im_end|>"}' >published/special_tokens_map.json
printf 'TEMPLATE{{ messages }}' >published/chat_template.jinja
quiet trained --data text.txt --init published "${small[@]:0:4}" --steps 2 --save-every 1 --keep 0 --threads 1
mv published moved
quiet resumed --data text.txt --init moved "${small[@]:0:4}" --steps 2 --threads 1 \
  --resume out_trained/checkpoints/step_00000001
"$BIN_DIR/shale" ckpt export out_resumed --out converted >output 2>&1 || fail "ckpt export"
"$BIN_DIR/shale" ckpt export out_trained --out model.gguf --to gguf >output 2>&1 || fail "ckpt export to GGUF"
for folder in trained resumed converted; do
  for file in generation_config.json special_tokens_map.json; do
    cmp -s "moved/$file" "$folder/$file" || fail "$folder/$file is not that of the folder that came in"
  done
  want "$folder/config.json" /eos_token_id "$turn"
  want "$folder/config.json" /pad_token_id "$pad"
  want "$folder/config.json" /initializer_range 0.5
  want "$folder/tokenizer_config.json" /eos_token/content '"<|im_end|>"'
  want "$folder/tokenizer_config.json" /pad_token '"<pad>"'
  want "$folder/tokenizer_config.json" /chat_template '"TEMPLATE{{ messages }}"'
done
grep -qaF 'TEMPLATE{{ messages }}' model.gguf || fail "a GGUF file has the chat template"
grep -qaF 'tokenizer.ggml.eot_token_id' model.gguf || fail "a GGUF file has the second end"
# Repeats this for a family whose config.json lacks the key of end tokens by default, and for
# several templates.
cp -r nano gpt2
sed -i "s/\"eos_token_id\": $end/\"eos_token_id\": [$turn, $end], \"pad_token_id\": $pad/" gpt2/config.json
mkdir gpt2/additional_chat_templates
echo 'TEMPLATE' >gpt2/chat_template.jinja
echo 'TOOLS' >gpt2/additional_chat_templates/tool_use.jinja
quiet gpt2_out --data text.txt --init gpt2 "${small[@]:0:4}" --steps 1 --threads 1
want gpt2_out/config.json /eos_token_id "[$turn,$end]"
want gpt2_out/config.json /pad_token_id "$pad"
want gpt2_out/tokenizer_config.json /chat_template/1/name '"tool_use"'
# A tokenizer other than the model's is refused, as its token ids have other meanings.
"$BIN_DIR/shale" tokenizer train text.txt --vocab 280 --out other.json --special "<pad>,<|endoftext|>" >output 2>&1
"$train" --data text.txt --init moved --tokenizer other.json --steps 1 --out other >output 2>&1
[[ $? -eq 64 && ! -e other ]] && grep -q "tokenizers differ: .* moved/tokenizer.json" output ||
  fail "another tokenizer than the model's is refused, code 64: $(tail -n 1 output)"
# A tokenizer.json converted from a SentencePiece file is declared as PreTrainedTokenizerFast,
# whichever class the original's configuration names.
mkdir pieces
gzip -dc "$fixtures/tokenizer/sentencepiece/small.model.gz" >pieces/tokenizer.model
echo '{"tokenizer_class": "LlamaTokenizer", "eos_token": "</s>", "legacy": false}' >pieces/tokenizer_config.json
quiet of_pieces --data text.txt --tokenizer pieces/tokenizer.model --model llama-nano "${small[@]}"
want of_pieces/tokenizer_config.json /tokenizer_class '"PreTrainedTokenizerFast"'
want of_pieces/tokenizer_config.json /legacy false
# A model fine-tuned on conversations here ends its answers with the end-of-turn token and stores
# its template.
echo '{"messages":[{"role":"user","content":"hi"},{"role":"assistant","content":"a line"}]}' >chats.jsonl
quiet chat --task sft --data chats.jsonl --val-fraction 0 --init out_llama-nano "${small[@]:0:4}" --steps 1 --threads 1
"$BIN_DIR/shale" ckpt export out_chat --out chat_converted >output 2>&1 || fail "ckpt export of a chat"
for folder in chat chat_converted; do
  want "$folder/generation_config.json" /eos_token_id "[$end,$turn]"
  want "$folder/config.json" /eos_token_id "[$end,$turn]"
  value "$folder/tokenizer_config.json" /chat_template | grep -qF "<|im_start|>assistant" ||
    fail "$folder has no chat template"
done
# The end-of-turn token is the one that the template writes after an answer, whatever its name.
cp -r llama-nano own
echo '{% for m in messages %}[{{ m.role }}]{{ m.content }}{{ "<turn" ~ "|>" }}{% endfor %}' >own/chat_template.jinja
quiet own_chat --task sft --data chats.jsonl --val-fraction 0 --init own "${small[@]:0:4}" --steps 1 --threads 1
want own_chat/generation_config.json /eos_token_id "[$end,$(id '<turn|>')]"
# Each of the end tokens stops `shale generate`.
cp -r llama-nano silent
echo "{\"eos_token_id\": [$(seq -s, 0 299)]}" >silent/generation_config.json
"$BIN_DIR/shale" generate silent --prompt line --tokens 4 --threads 1 >output 2>&1
[[ $(cat output) == line ]] || fail "generate goes on behind a token of eos_token_id"
# A checkpoint of a fine-tuned model also formats conversations with its template.
quiet qwen --task sft --data chats.jsonl --val-fraction 0 --tokenizer tokenizer.json --chat-template qwen \
  --model llama-nano "${small[@]:2}" --seq-len 192
"$BIN_DIR/shale" ckpt export out_qwen --out qwen_converted >output 2>&1 || fail "ckpt export of a Qwen chat"
for folder in qwen qwen_converted; do
  value "$folder/tokenizer_config.json" /chat_template >output
  grep -qF "You are Qwen" output || fail "$folder has not the template of --chat-template"
  grep -qE "generation %|continue %" output && fail "$folder has a template that few programs read"
done
quiet again --task sft --data chats.jsonl --val-fraction 0 --init out_qwen "${small[@]:2:4}" \
  --seq-len 192 --threads 1
cmp -s qwen/tokenizer_config.json again/tokenizer_config.json || fail "the next run takes another template"
"$BIN_DIR/shale" ckpt export out_chat --out chat.gguf --to gguf >output 2>&1 || fail "GGUF of a chat"
grep -qaF "<|im_start|>assistant" chat.gguf || fail "a GGUF file of a chat has no template"

finish
