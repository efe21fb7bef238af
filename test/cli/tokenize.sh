#!/usr/bin/env bash
# Tests tokenizers: shale tokenizer train, shale tokenize, and train_lm on texts and on shards that
# they made. Wrong input is refused and leaves no partial output.
source "$(dirname "${BASH_SOURCE[0]}")/../support/cli.sh"

train="$BIN_DIR/train_lm"
shale="$BIN_DIR/shale"
cases=0
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
cd "$work" || exit 1

shown=()
# expect CODE WORDS... -- COMMAND...: checks the exit code and the words in the output; an error
# must be one line.
expect() {
  local code=$1 words=() got lines
  shift
  while [[ $1 != -- ]]; do words+=("$1"); shift; done
  shift
  cases=$((cases + 1))
  timeout 120 "$@" >stdout 2>stderr
  got=$?
  [[ $got -eq $code ]] || { fail "$*: exit code $got, expected $code"; head -n 5 stderr; }
  lines=$(grep -c 'error:' stderr)
  [[ $code -lt 64 || $lines -eq 1 ]] || { fail "$*: $lines error lines, expected 1"; head -n 5 stderr; }
  for word in "${words[@]}"; do
    grep -qF -- "$word" stdout stderr && continue
    fail "$*: it does not say '$word'"
    head -n 5 stdout stderr
  done
}
same() { cases=$((cases + 1)); cmp -s "$1" "$2" || fail "$1 and $2 differ"; }
absent() { cases=$((cases + 1)); [[ ! -e $1 ]] || fail "$1 is there"; }

# ---- A corpus of several batches ----

mkdir corpus
perl -e '
  srand(1);
  my @words = map { join("", map { chr(97 + int(rand(26))) } 1 .. 2 + int(rand(8))) } 1 .. 3000;
  sub line { join(" ", map { $words[int(rand() ** 3 * @words)] } 1 .. 3 + int(rand(20))) }
  open(my $jsonl, ">", "corpus/a.jsonl") or die;
  print $jsonl "{\"id\":$_,\"body\":\"", line(), ". ", ucfirst(line()), "\"}\n" for 1 .. 60000;
  open(my $text, ">", "corpus/b.txt") or die;
  print $text ucfirst(line()), ".\n" for 1 .. 10000;'
gzip -k corpus/a.jsonl

# ---- Training a tokenizer ----

expect 0 "2000 tokens" "wrote tokenizer.json" -- "$shale" tokenizer train corpus/b.txt \
  corpus/a.jsonl --field body --vocab 2000 --out tokenizer.json
expect 0 -- "$shale" tokenizer train corpus/b.txt corpus/a.jsonl.gz --field body --vocab 2000 \
  --threads 1 --out again.json
same tokenizer.json again.json
expect 0 "only" -- "$shale" tokenizer train corpus/b.txt --vocab 1000000 --split gpt2 \
  --out large.json
expect 0 -- "$shale" tokenizer train corpus/b.txt --vocab 2000 --split gpt2 --out other.json
expect 64 "expected 257" -- "$shale" tokenizer train corpus/b.txt --vocab 256 --out none.json
expect 64 "expected input files" -- "$shale" tokenizer train --out none.json
expect 66 "nowhere" -- "$shale" tokenizer train nowhere.txt --out none.json
absent none.json

# ---- Shards ----

tokenize=("$shale" tokenize corpus/a.jsonl corpus/b.txt --field body --tokenizer tokenizer.json
          --shard-tokens 150000)
expect 0 "60001 documents" "100%" "iB/s" "wrote one" -- "${tokenize[@]}" --out one --threads 1
expect 0 "wrote three" -- "${tokenize[@]}" --out three --threads 3
shards=$(cd one && echo tokens_*.bin)
[[ $(wc -w <<<"$shards") -ge 5 ]] || fail "few shards: $shards"
for shard in $shards; do same "one/$shard" "three/$shard"; done
# The job is already done.
expect 0 "60001 documents" "by a hash of each" -- "${tokenize[@]}" --out one
same one/tokenizer.json tokenizer.json
grep -q '"eos_token": "<|endoftext|>"' one/tokenizer_config.json || fail "no declared end"
[[ -s one/val_000000.bin && $shards != *val* ]] || fail "no shard for validation"
for shard in $(cd one && echo val_*.bin); do same "one/$shard" "three/$shard"; done
expect 64 "its shard_tokens is 150000" -- "${tokenize[@]}" --out one --shard-tokens 7

# Kills or stops the command repeatedly once some shards exist.
for signal in KILL KILL TERM; do
  "${tokenize[@]}" --out killed --threads 2 >killed.log 2>&1 &
  pid=$!
  before=$(ls killed.partial 2>/dev/null | grep -c '^tokens')
  for _ in $(seq 2000); do
    now=$(ls killed.partial 2>/dev/null | grep -c '^tokens')
    [[ $now -gt $before ]] && break
    kill -0 $pid 2>/dev/null || break
    sleep 0.005
  done
  kill -s $signal $pid 2>/dev/null
  wait $pid 2>/dev/null
  code=$?
  [[ $signal == KILL || $code -eq 75 || $code -eq 0 ]] || fail "SIG$signal: exit code $code, expected 75"
done
expect 0 "60001 documents" -- "${tokenize[@]}" --out killed
absent killed.partial
for shard in $shards; do same "one/$shard" "killed/$shard"; done
[[ $(ls -A killed | wc -l) -eq $(ls -A one | wc -l) ]] || fail "killed/ has other files than one/"

# ---- Standard input and pipes ----

piped=("$shale" tokenize - --field body --tokenizer tokenizer.json --shard-tokens 150000)
of_file=("$shale" tokenize corpus/a.jsonl "${piped[@]:3}")
expect 0 "60000 documents" -- "${of_file[@]}" --out of_file
expect 0 "60000 documents" "wrote of_pipe" -- "${piped[@]}" --out of_pipe <corpus/a.jsonl
expect 0 "60000 documents" -- "$shale" tokenize <(cat corpus/a.jsonl) "${piped[@]:3}" --out of_fifo
for shard in $(cd of_file && echo *.bin); do
  same "of_file/$shard" "of_pipe/$shard"
  same "of_file/$shard" "of_fifo/$shard"
done
expect 0 "2000 tokens" -- "$shale" tokenizer train - --field body --vocab 2000 --out of_pipe.json <corpus/a.jsonl
expect 0 "2000 tokens" -- "$shale" tokenizer train corpus/a.jsonl --field body --vocab 2000 --out of_file.json
same of_pipe.json of_file.json
expect 64 "of_pipe already exists" -- "${piped[@]}" --out of_pipe <corpus/a.jsonl
expect 64 "must be the only input, found 2 inputs" -- "$shale" tokenize - corpus "${piped[@]:3}" --out none
expect 65 "standard input: expected text or jsonl, found gzip; pipe the decompressed text" -- "${piped[@]}" --out none <corpus/a.jsonl.gz
# A program that waits for its input can be stopped. A stopped job starts again from the beginning.
mkfifo fifo
"$shale" tokenize fifo "${piped[@]:3}" --out stopped >stopped.log 2>&1 &
pid=$!
{ head -n 40000 corpus/a.jsonl; sleep 1; kill -TERM $pid; sleep 1; } >fifo
wait $pid
[[ $? -eq 75 ]] || fail "SIGTERM during a read: exit code $?, expected 75"
grep -qF "the same command starts again" stopped.log || fail "a stopped pipe: $(cat stopped.log)"
expect 0 "60000 documents" -- "$shale" tokenize <(cat corpus/a.jsonl) "${piped[@]:3}" --out stopped
same stopped/tokens_000000.bin of_file/tokens_000000.bin
if command -v python3 >/dev/null; then
  data=$root/bindings/python/shale/data.py
  in_stream=("$shale" tokenize - --tokenizer tokenizer.json --val-fraction 0)
  expect 0 "60000 documents" -- "${in_stream[@]}" --out stream \
    < <(python3 "$data" corpus/a.jsonl --column body 2>/dev/null)
  expect 0 "3 documents" -- "${in_stream[@]}" --out tars \
    < <(python3 "$data" "$root/test/fixtures/data_sets/text.tar" 2>/dev/null)
  # If a program on the pipe fails after some lines, the rest is not taken as a shorter data set.
  expect 65 "standard input: ends after 100 lines without the last line of shale.data" -- \
    "${in_stream[@]}" --out none < <(python3 "$data" corpus/a.jsonl --column body 2>/dev/null | head -n 100)
  printf '{"text": "a"}\n{"te' >broken.jsonl
  expect 65 "no text" -- "${in_stream[@]}" --out none < <(python3 "$data" broken.jsonl 2>/dev/null)
fi
absent none

# ---- Wrong input ----

bad() { expect "$@" --out bad; absent bad; absent bad.partial; }
in_shards=("$shale" tokenize --tokenizer tokenizer.json)
head -c 100000 corpus/a.jsonl.gz >truncated.jsonl.gz
printf 'caf\xe9 noir\n' >latin1.txt
perl -e 'print "{\"text\":\"", "a" x (100 << 20), "\"}\n"' >line.jsonl
echo '{"model":{"type":"WordPiece","vocab":{}}}' >wordpiece.json
perl -e 'print "[" x 100000' >deep.json
echo '{"a":1}' >keys.jsonl
bad 65 "truncated.jsonl.gz: ends in the middle" -- "$shale" tokenize truncated.jsonl.gz \
  --field body --tokenizer tokenizer.json --shard-tokens 10000000
bad 65 "latin1.txt: not UTF-8 at byte 3" -- "$shale" tokenize latin1.txt --tokenizer tokenizer.json
bad 65 "line.jsonl:1: the line has more than 64.0 MiB" -- "$shale" tokenize line.jsonl \
  --tokenizer tokenizer.json
bad 65 "keys.jsonl:1: expected a string with the key 'text', found " -- "$shale" tokenize keys.jsonl \
  --tokenizer tokenizer.json
bad 65 "WordPiece" -- "$shale" tokenize corpus --tokenizer wordpiece.json
bad 65 "deep.json" -- "$shale" tokenize corpus --tokenizer deep.json
bad 65 "latin1.txt" "tiktoken" -- "$shale" tokenize corpus --tokenizer latin1.txt
bad 66 "nowhere.json" -- "$shale" tokenize corpus --tokenizer nowhere.json
bad 66 "nowhere.txt" -- "$shale" tokenize nowhere.txt --tokenizer tokenizer.json
bad 64 "expected input files" -- "$shale" tokenize --tokenizer tokenizer.json
bad 64 "--document-end" "<none>" -- "$shale" tokenize corpus/b.txt --tokenizer tokenizer.json \
  --document-end '<none>'

# ---- Training a model on text, with the tokenizer ----

lm=("$train" --layers 1 --seq-len 32 --micro-batch 2 --device cpu --threads 1
    --schedule constant)
expect 0 "vocabulary 2000" "tokens of tokenizer.json" "sample:" -- "${lm[@]}" --data corpus/b.txt \
  --tokenizer tokenizer.json --steps 2 --out run --sample-tokens 8 --sample-prompt 'The word' \
  --export exported
grep -q '^The word' stdout || fail "the sample does not begin with its prompt"
same tokenizer.json run/checkpoints/step_00000002/tokenizer.json
same tokenizer.json exported/tokenizer.json
grep -q '"eos_token": "<|endoftext|>"' exported/tokenizer_config.json || fail "no eos_token"
# The checkpoint's tokenizer is found without a flag; another tokenizer is refused.
mv tokenizer.json moved.json
expect 0 "resumed" "tokens of run/checkpoints/step_00000002/tokenizer.json" -- "${lm[@]}" \
  --data corpus/b.txt --steps 4 --resume auto --out run
expect 64 "text tokenizer" "was" -- "${lm[@]}" --data corpus/b.txt --steps 6 --resume auto \
  --out run --tokenizer other.json
expect 64 "training data" -- "${lm[@]}" --data corpus/b.txt --steps 6 --resume auto --out run \
  --tokenizer none --vocab 2000
# Shards carry their tokenizer; another tokenizer, or a model without one, is refused.
expect 0 "vocabulary 2000" "validation tokens (chosen by file name)" -- "${lm[@]}" --data one --steps 1 --out own
same moved.json own/checkpoints/step_00000001/tokenizer.json
expect 64 "tokenizers differ: --tokenizer has other.json of 2000 tokens" -- "${lm[@]}" --data one \
  --tokenizer other.json --steps 1 --out none
expect 64 "tokenizers differ: --tokenizer has other.json of 2000 tokens" -- "${lm[@]}" \
  --data corpus/b.txt --init exported --tokenizer other.json --steps 1 --out none
expect 64 "--tokenizer none, but the tokens of one" -- "${lm[@]}" --data one --tokenizer none --steps 1 \
  --out none
mkdir bare && cp exported/*.safetensors exported/config.json bare
expect 64 "no tokenizer found for its 2000 tokens" -- "${lm[@]}" --data corpus/b.txt --init bare \
  --steps 1 --out none
absent none
# Trains an exported model on shards, and exports it as a GGUF file and to another folder.
expect 0 "vocabulary 2000" -- "${lm[@]}" --init exported --data one --steps 2 --out tuned \
  --sample-tokens 4
same moved.json tuned/checkpoints/step_00000002/tokenizer.json
expect 0 "wrote model.gguf" -- "$shale" ckpt export tuned --to gguf --out model.gguf
expect 0 "wrote hf" -- "$shale" ckpt export tuned --out hf
same moved.json hf/tokenizer.json
expect 0 -- "$shale" ckpt reshard tuned --ranks 2 --out resharded
same moved.json resharded/checkpoints/step_00000002/tokenizer.json
# A replaced or missing tokenizer would produce other text: every program refuses it.
expect 0 "ok       tokenizer.json" -- "$shale" ckpt verify tuned
for case in replaced missing; do
  cp -r tuned "$case"
  at=$case/checkpoints/step_00000002/tokenizer.json
  if [[ $case == replaced ]]; then sed 's/"a"/"@"/; s/"b"/"a"/; s/"@"/"b"/' moved.json >"$at"; else rm "$at"; fi
  for command in "ckpt verify" "ckpt export --out none" "generate --prompt a"; do
    read -ra words <<<"$command"
    expect 65 "$at: expected the tokenizer of the run, 2000 tokens (CRC-32C" "--tokenizer" -- \
      "$shale" "${words[@]}" "$case"
  done
  expect 0 -- "$shale" generate "$case" --prompt a --tokens 1 --tokenizer moved.json
done
expect 0 "wrote kept" -- "$shale" ckpt export replaced --tokenizer moved.json --out kept
same moved.json kept/tokenizer.json
# A prompt longer than the context is a user error; the other prompts in its file are still
# answered.
long=$(perl -e 'print "ab " x 100')
expect 64 "--prompt has" "expected at most 31" -- "$shale" generate tuned --prompt "$long"
[[ ! -s stdout ]] || fail "a prompt was printed that cannot go on"
printf '{"prompt": "a"}\n{"prompt": "%s"}\n{"prompt": 1}\n{"prompt": "b"}\n' "$long" >prompts.jsonl
expect 65 "2 of 4 prompts have no answer; first error: prompts.jsonl:2: the prompt has" -- \
  "$shale" generate tuned --prompts prompts.jsonl --tokens 2 --batch 3
[[ $(sed 's/":.*//' stdout) == $'{"text\n{"error\n{"error\n{"text' ]] ||
  fail "prompts in a file: $(cut -c 1-40 stdout)"
# Tools refuse paths with control characters, and report files they cannot access as user errors.
bad=$'a\nerror: b'
for command in "ckpt verify" "ckpt inspect" "ckpt reshard --ranks 1 --out r" "ckpt export --out r" \
    "generate --prompt a" "report" "tokenize --tokenizer moved.json --out r"; do
  read -ra words <<<"$command"
  expect 64 'without control characters, found' 'a\x0aerror: b' -- \
    "$shale" "${words[@]:0:1}" $([[ ${words[0]} == ckpt ]] && echo "${words[1]}") "$bad"
done
expect 64 'without control characters' -- "$shale" ckpt export tuned --out "$bad"
expect 64 "unexpected argument 'run'" "put it before the flags" -- "$shale" report --out x.html run
ln -s loop loop
for command in "report loop" "metrics loop --csv" "watch loop --once"; do
  read -ra words <<<"$command"
  expect 74 "loop: cannot be accessed" -- "$shale" "${words[@]}"
done
expect 74 "loop: cannot be accessed" -- "${lm[@]}" --data corpus/b.txt --tokenizer moved.json \
  --steps 1 --out wrong --attention-pattern loop
# ---- Refused combinations ----
expect 65 "moved.json: 2000 tokens, the model's vocabulary is 300" -- "${lm[@]}" --steps 1 \
  --data corpus/b.txt --tokenizer moved.json --vocab 300 --out wrong
expect 65 "latin1.txt: not UTF-8 at byte 3" -- "${lm[@]}" --steps 1 --data latin1.txt \
  --tokenizer moved.json --out wrong
expect 66 "nowhere.json" -- "${lm[@]}" --steps 1 --data corpus/b.txt --tokenizer nowhere.json \
  --out wrong
expect 65 "wordpiece.json" -- "${lm[@]}" --steps 1 --data corpus/b.txt --tokenizer wordpiece.json \
  --out wrong

finish "all $cases cases as expected"
