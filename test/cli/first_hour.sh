#!/usr/bin/env bash
# Runs the steps of docs/tutorials/first_hour.md and lora.md on small files: from text to a chat
# model, exported in the formats that other tools read.
source "$(dirname "${BASH_SOURCE[0]}")/../support/cli.sh"
shown=("$work/output")

train="$BIN_DIR/train_lm"
shale="$BIN_DIR/shale"
cd "$work" || exit 1
mkdir corpus
perl -e 'srand(3); for my $f (1 .. 3) { open(my $o, ">", "corpus/$f.txt") or die;
  for (1 .. 400) { my ($x, $y) = (int(rand(9)), int(rand(9)));
    print $o "The sum of $x and $y is ", $x + $y, ". The sea is blue and the sand is warm.\n" } }
  open(my $c, ">", "chats.jsonl") or die;
  for (1 .. 200) { my ($x, $y) = (int(rand(9)), int(rand(9)));
    print $c "{\"messages\":[{\"role\":\"user\",\"content\":\"$x and $y?\"},",
      "{\"role\":\"assistant\",\"content\":\"It is ", $x + $y, ".\"}]}\n" }'
cp corpus/1.txt held_out.txt

# step WORDS... -- COMMAND...: the command succeeds and prints these words.
step() {
  local words=()
  while [[ $1 != -- ]]; do words+=("$1"); shift; done
  shift
  timeout 240 "$@" >output 2>&1 || { fail "$*: exit code $?"; finish; }
  for word in "${words[@]}"; do grep -qF -- "$word" output || fail "$*: it does not say '$word'"; done
}
loss_of() { sed -nE 's/.*"val_loss": ([0-9.]+).*/\1/p' "$1/metrics.jsonl"; }

step "wrote tokenizer.json" -- "$shale" tokenizer train corpus/ --vocab 320 --out tokenizer.json \
  --special "<|endoftext|>,<|im_start|>,<|im_end|>"
step "wrote tokens" -- "$shale" tokenize corpus/ --tokenizer tokenizer.json --out tokens
step "validation" "done: 60 steps in " "; best validation loss " "; saved in base" \
  "next: shale report base, shale generate base" -- "$train" --model llama-nano --layers 2 --width 32 --heads 4 --kv-heads 2 \
  --hidden 64 --data tokens --tokenizer tokenizer.json --seq-len 64 --steps 60 --micro-batch 8 \
  --lr 1e-2 --eval-every 30 --save-every 30 --out base
loss_of base | awk 'NR == 1 { first = $1 } { last = $1 } END { exit !(last < first) }' ||
  fail "the validation loss of pre-training does not fall: $(loss_of base)"
step "The" -- "$shale" generate base --prompt "The" --tokens 20
step "perplexity" "bits_per_byte" -- "$shale" evaluate base --data held_out.txt --seq-len 32
evaluate=(evaluate base --data held_out.txt --seq-len 32 --batch 3 --json --threads 1)
"$shale" "${evaluate[@]}" >alone 2>&1
timeout 60 mpirun --oversubscribe --bind-to none -np 2 "$shale" "${evaluate[@]}" >together 2>&1
grep -qF '"perplexity"' alone && cmp -s alone together ||
  fail "two ranks evaluate otherwise: $(cat alone together)"
step "validation" "next: shale report whole, shale generate whole --chat" -- "$train" --task sft --data chats.jsonl --init base --seq-len 64 --steps 40 \
  --micro-batch 4 --lr 5e-3 --eval-every 20 --out whole
loss_of whole | awk 'NR == 1 { first = $1 } { last = $1 } END { exit !(last < first) }' ||
  fail "the validation loss of fine-tuning does not fall: $(loss_of whole)"
# Runs the steps of docs/tutorials/lora.md, with this model in place of a published one.
step "wrote published" -- "$shale" ckpt export whole --out published
step "adapters of rank 4" -- "$train" --task sft --data chats.jsonl --init published --lora-rank 4 \
  --seq-len 64 --steps 40 --micro-batch 4 --lr 2e-2 --eval-every 20 --out chat
loss_of chat | awk 'NR == 1 { first = $1 } { last = $1 } END { exit !(last < first) }' ||
  fail "the validation loss of adapters does not fall: $(loss_of chat)"
step -- "$shale" generate chat --chat --prompt "2 and 3?" --tokens 20
printf '2 and 3?\n4 and 4?\n' | timeout 60 "$shale" generate chat --chat --tokens 12 >output 2>&1 ||
  fail "a conversation: exit code $?"
[[ $(wc -l <output) -ge 2 ]] || fail "a conversation has two answers"
step "wrote chat_hf" -- "$shale" ckpt export chat --out chat_hf --dtype bf16
step "wrote chat.gguf" -- "$shale" ckpt export chat --out chat.gguf --to gguf --dtype q8_0
[[ -s chat_hf/model.safetensors && -s chat_hf/tokenizer.json && -s chat.gguf ]] ||
  fail "something is missing: $(ls chat_hf)"
# The exported (merged) model generates the same text as the trained one.
"$shale" generate chat --chat --prompt "2 and 3?" --temperature 0 --tokens 10 >merged 2>&1
step "wrote chat_f32" -- "$shale" ckpt export chat --out chat_f32
"$shale" generate chat_f32 --chat --prompt "2 and 3?" --temperature 0 --tokens 10 >again 2>&1
cmp -s merged again || fail "the export writes something else: $(head -c 200 merged again)"

# A byte-level model needs no tokenizer; one with a larger vocabulary does.
step "validation" -- "$train" --model nano --layers 1 --width 32 --heads 2 --data corpus --seq-len 64 \
  --steps 60 --micro-batch 8 --lr 1e-2 --eval-every 60 --out bytes
step "The s" -- "$shale" generate bytes --prompt "The s" --tokens 20
step "perplexity" -- "$shale" evaluate bytes --data held_out.txt --seq-len 32
"$shale" generate chat_f32 --prompt "The" >output 2>&1 || fail "a model with its tokenizer: $?"
rm chat_f32/tokenizer.json
"$shale" generate chat_f32 --prompt "The" >output 2>&1
[[ $? -eq 64 ]] && grep -q "vocabulary of [0-9]* tokens; use --tokenizer" output ||
  fail "a model without its tokenizer: $(head -c 300 output)"

finish
