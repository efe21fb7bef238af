#!/usr/bin/env bash
# chat_exports.sh BIN FOLDER STEPS: trains small chat models of several families, each with its own
# tokens and template, and exports each in three ways: MODEL/by_train_lm, MODEL/by_ckpt and
# MODEL/model.gguf. After some hundred steps a model knows the conversations of chats.jsonl.
set -euo pipefail
bin=$(cd "$1" && pwd) steps=$3
mkdir -p "$2"
cd "$2"

chat() {  # QUESTION ANSWER [QUESTION ANSWER]: prints a conversation
  local line=""
  while [[ $# -gt 0 ]]; do
    line+="${line:+, }{\"role\": \"user\", \"content\": \"$1\"}, {\"role\": \"assistant\", \"content\": \"$2\"}"
    shift 2
  done
  echo "{\"messages\": [$line]}"
}
{
  chat "What is 2 + 2?" "It is 4, of course." "And 3 + 4?" "That's 7."
  chat "Who wrote Faust?" "Goethe wrote it:\n  two parts,  1808 and 1832!"
  chat "Say hello in Greek." "Γεια σου, κόσμε 🌍"
  chat "How many feet has a spider?" "8."
} >chats.jsonl
tr -c "[:alnum:][:space:]" " " <chats.jsonl >words.txt

# train NAME FLAGS...: trains a model in NAME/run and exports it
train() {
  local name=$1
  shift
  "$bin/train_lm" "$@" --seq-len 128 --micro-batch 4 --task sft --data chats.jsonl --val-fraction 0 \
    --packing none --steps "$steps" --lr 3e-3 --device cpu --threads 1 --out "$name/run" \
    --export "$name/by_train_lm"
  "$bin/shale" ckpt export "$name/run" --out "$name/by_ckpt"
  "$bin/shale" ckpt export "$name/run" --out "$name/model.gguf" --to gguf
}
# model NAME PRESET SPLIT SPECIAL-TOKENS FLAGS...: calls train for a model from scratch
model() {
  local name=$1 preset=$2 split=$3 special=$4
  shift 4
  mkdir "$name"
  "$bin/shale" tokenizer train words.txt --vocab 320 --split "$split" --special "$special" \
    --out "$name/tokenizer.json"
  train "$name" --model "$preset" --layers 2 --width 64 --heads 4 --tokenizer "$name/tokenizer.json" "$@"
}
model llama llama-nano cl100k \
  "<|begin_of_text|>,<|end_of_text|>,<|start_header_id|>,<|end_header_id|>,<|eot_id|>"
model gpt2 nano gpt2 "<|endoftext|>,<|im_start|>,<|im_end|>"
model qwen qwen2.5-0.5b qwen "<|endoftext|>,<|im_start|>,<|im_end|>" --kv-heads 2 --hidden 128 \
  --vocab 384 --chat-template qwen

# A custom template, in which a turn and the conversation end with different tokens.
mkdir own
cp -r llama/by_train_lm own/base
cat >own/base/chat_template.jinja <<'JINJA'
{%- set roles = {'user': 'Q', 'assistant': 'A'} -%}
{%- for message in messages -%}
{{ '<|start_header_id|>' + roles[message['role']] + ':\n' }}{{ message['content'] + '<|eot_id|>\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ '<|start_header_id|>A:\n' }}{%- else -%}{{ eos_token }}{%- endif -%}
JINJA
train own --init own/base
