#!/usr/bin/env bash
# Tests data options: a mixture of formats whose order depends only on the seed and the position,
# document masking, a corpus that is tokenized once and cached, and errors on wrong input.
source "$(dirname "${BASH_SOURCE[0]}")/../support/cli.sh"
shown=("$work/output")

sets=$(cd "$(dirname "${BASH_SOURCE[0]}")/../fixtures/data_sets" && pwd)
train="$BIN_DIR/train_lm"
shale="$BIN_DIR/shale"
cd "$work" || exit 1
mkdir corpus mega
perl -e 'srand(9);
  sub line { join(" ", map { ("sea", "sand", "wind", "salt", "sun")[int(rand(5))] } 1 .. 3 + int(rand(9))) }
  open(my $t, ">", "text.txt") or die; print $t line(), ".\n" for 1 .. 400;
  open(my $c, ">", "corpus/a.jsonl") or die;
  print $c "{\"body\":\"", line(), ".\"}\n" for 1 .. 400;
  my @tokens = map { 1 + int(rand(250)) } 1 .. 4000;
  open(my $r, ">:raw", "raw.npy") or die; print $r pack("v*", @tokens);
  open(my $b, ">:raw", "mega/d.bin") or die; print $b pack("v*", @tokens);
  open(my $i, ">:raw", "mega/d.idx") or die;
  print $i "MMIDIDX\0\0", pack("Q<CQ<Q<l<l<q<q<q<q<q<", 1, 8, 2, 3, 1000, 3000, 0, 2000, 0, 1, 2)'
"$shale" tokenizer train text.txt --vocab 300 --out tokenizer.json >output 2>&1 ||
  { fail "no tokenizer"; finish; }
gzip -k corpus/a.jsonl && mv corpus/a.jsonl.gz packed.jsonl.gz
cat >all.mix.json <<'END'
{"sources": [{"path": "mega", "weight": 2}, {"path": "raw.npy", "weight": 1, "dtype": "u16"},
             {"path": "text.txt", "weight": 1}]}
END

common=(--tokenizer tokenizer.json --layers 1 --width 32 --heads 2 --seq-len 32 --global-batch 8
  --micro-batch 1 --threads 1 --keep 0 --lr 1e-2)
# run PROCESSES OUT FLAGS...: runs train_lm with output folder OUT.
run() {
  launch "$1" "$train" "${common[@]}" --out "$2" "${@:3}" >output 2>&1
  code=$?
  [[ $code -eq 0 ]] || fail "$2: exit code $code"
}
bits() { sed -nE 's/^\{"step": ([0-9]+), .*"loss_bits": ("[0-9a-f]*").*/\1 \2/p' "$1/metrics.jsonl"; }
same_bits() { [[ -n $(bits "$1") && $(bits "$1") == "$(bits "$2")" ]] || fail "$1 and $2 have other losses"; }

run 1 one --data all.mix.json --steps 8 --reproducible --save-every 4 --eval-every 8
grep -qF "50% of the sequences" output || fail "the log does not say the shares"
grep -qF "epochs" output || fail "the log does not say the epochs"
run 2 two --data all.mix.json --steps 8 --reproducible
same_bits one two
# Resumes halfway with another number of ranks and another micro-batch. The samples are the same,
# and losses match up to rounding.
run 2 rest --data all.mix.json --steps 8 --resume one/checkpoints/step_00000004 --micro-batch 2
val() { sed -nE 's/^\{"step": 8, "loss": ([0-9.]+).*/\1/p' "$1/metrics.jsonl"; }
awk -v a="$(val one)" -v b="$(val rest)" 'BEGIN { d = a - b; exit !(a > 0 && d * d < 1e-8 * a * a) }' ||
  fail "a mixture goes on with other samples: $(val one) and $(val rest)"
printf '{"sources":[{"path":"mega","weight":2},{"path":"text.txt","weight":1}]}' >two.mix.json
run 1 listed --data two.mix.json --steps 4 --reproducible
run 1 flags --data "mega:2,text.txt:1" --steps 4 --reproducible
same_bits listed flags

# Masked and packed documents, on any number of ranks.
documents=(--data corpus/a.jsonl --data-field body --data-cache cache0 --steps 6 --reproducible)
run 1 plain "${documents[@]}"
run 1 masked1 "${documents[@]}" --document-mask
run 2 masked2 "${documents[@]}" --document-mask --zero 3
same_bits masked1 masked2
[[ $(bits plain) != "$(bits masked1)" ]] || fail "a mask of documents changes nothing"
run 1 packed1 "${documents[@]}" --packing best-fit
run 2 packed2 "${documents[@]}" --packing best-fit
same_bits packed1 packed2

# Tensor, context and pipeline parallelism give the losses of one rank up to rounding, with document
# masks.
shared=(--data corpus/a.jsonl --data-field body --data-cache cache0 --steps 6 --document-mask
  --eval-every 3 --eval-samples 5)
all_losses() { sed -nE 's/^\{"step": [0-9]+, "(val_)?loss": ([0-9.]+).*/\2/p' "$1/metrics.jsonl"; }
# follows NAME REFERENCE: losses and validations match REFERENCE up to rounding.
follows() {
  paste <(all_losses "$1") <(all_losses "$2") |
    awk '{ d = $1 - $2; if (d < 0) d = -d; if (d > 1e-4) bad = 1 } END { exit NR != 8 || bad }' ||
    fail "$1 does not follow $2"
}
for model in nano llama-nano; do
  one=(--model "$model" --layers 1 "${shared[@]}")
  run 1 "$model" "${one[@]}"
  for axis in context tensor pipeline; do
    run $([[ $axis == pipeline ]] && echo 2 || echo 1) "$model-$axis" "${one[@]}" "--$axis" 2
    follows "$model-$axis" "$model"
  done
done
run 1 context1 "${documents[@]}" --document-mask --context 2
run 2 context2 "${documents[@]}" --document-mask --context 2
same_bits context1 context2

# A corpus is tokenized once, compressed or not, on one or two ranks.
run 2 corpus1 --data packed.jsonl.gz --data-field body --data-cache cache --steps 4 --reproducible
[[ $(ls cache | wc -l) -eq 1 ]] || fail "the cache has $(ls cache)"
touch -r cache/packed-*/tokenize.json before
run 1 corpus2 --data packed.jsonl.gz --data-field body --data-cache cache --steps 4 --reproducible
same_bits corpus1 corpus2
[[ ! cache/packed-*/tokenize.json -nt before ]] || fail "tokens were made again"

# refused CODE WORD FLAGS...: the run must end with exit code CODE and an error that contains WORD.
refused() {
  local want=$1 word=$2 got
  shift 2
  timeout 60 "$train" "${common[@]}" --steps 1 --out refused "$@" >output 2>&1
  got=$?
  [[ $got -eq $want ]] || fail "$*: exit code $got, expected $want"
  grep -qF -- "$word" output || fail "$*: it does not say '$word'"
}
printf '{"body":"x"}\n{"other":"y"}\n' >lacks.jsonl
printf '[\n{"text":"x"}\n]\n' >all.json
printf '\x1f\x8b broken' >broken.jsonl.gz
refused 66 "gone" --data "text.txt:1,gone:2"
refused 64 "'heavy'" --data "text.txt:heavy"
refused 64 "1 of 2" --data "text.txt:1,raw.npy"
refused 64 "--data-format u16" --data raw.npy
refused 65 "lacks.jsonl:2" --data lacks.jsonl --data-field body
refused 65 "broken.jsonl.gz" --data broken.jsonl.gz
refused 64 "--packing none" --data text.txt --packing none
refused 64 "--document-token" --data raw.npy --data-format u16 --document-mask --tokenizer none

# Files in a folder are split by name, and a note names files that are left out. JSON files are
# never read as plain text.
says() {
  local word
  timeout 60 "$train" "${common[@]}" --steps 0 --no-save --out said "${@:2}" >output 2>&1 ||
    fail "${*:2}: exit code $?"
  grep -qF -- "$1" output || fail "${*:2}: it does not say '$1'"
  rm -rf said
}
mkdir -p hub/data/validation
head -n 300 corpus/a.jsonl >hub/data/0.json
tail -n 20 corpus/a.jsonl | gzip >hub/data/validation/0.JSON.GZ
cp hub/data/0.json hub/data/test.json
printf 'PAR1\0\0PAR1' >hub/data/0.parquet
says "320 documents in said/data-cache" --data hub --data-field body --model nano
says "validation tokens (chosen by file name); skipped 1 Parquet, 1 of the test split" --data hub --data-field body --model nano
says "(chosen by a hash of each document)" --data hub/data/0.json --data-field body --model nano
mkdir texts && printf 'a line\nand more of it, for a sequence\n%.0s' 1 2 3 >texts/train.txt && cp texts/train.txt texts/dev.txt
says "validation: 1 file, 114 B, chosen by file name" --data texts --model nano --tokenizer none
refused 64 "jsonl and compressed text need a tokenizer" --data hub --data-field body --tokenizer none
refused 64 "jsonl and compressed text need a tokenizer" --data hub/data/0.json --tokenizer none
refused 65 "expected an object with 'text' in each line" --data all.json
mkdir array && cp all.json array/a.json
refused 65 "no text or jsonl in this folder; skipped 1 JSON not in lines" --data array
refused 64 "jsonl and compressed text need a tokenizer" --data array --tokenizer none
refused 65 "0.parquet: expected text or jsonl, found a Parquet file" --data hub/data/0.parquet

# Data sets of other tools are refused with an error that gives the command to read them.
command="; read it with python3 -m shale.data"
for file in text.parquet:Parquet file.arrow:Arrow chats/data-00000-of-00001.arrow:Arrow text.tar:tar; do
  path=$sets/${file%:*}
  refused 65 "$path: expected text or jsonl, found a ${file#*:} file$command $path | shale" --data "$path"
done
mkdir clone && cp "$sets/text.parquet" clone && yes "# a data set" | head -n 200 >clone/README.md
refused 65 "clone: expected text or jsonl, found 818 B of Parquet beside 0 B of text$command clone |" --data clone
refused 65 "$sets/chats: expected text or jsonl, found 1.3 KiB of Arrow" --data "$sets/chats" --tokenizer none
refused 65 "a gzip file; it needs a tokenizer, and a name that ends with .gz" --data packed.jsonl.gz --data-format text
refused 66 "s3://a/b: no such file or folder (in --data); fetch it first: aws s3 cp --recursive s3://a/b DIR" --data s3://a/b
refused 66 "; fetch it first: hf download a/b --repo-type dataset --local-dir DIR" --data hf://datasets/a/b
refused 66 "fetch it: hf download HuggingFaceFW/fineweb --repo-type dataset" --data HuggingFaceFW/fineweb
refused 64 "texts/dev.txt: its name says that it is for validation" --data texts/train.txt,texts/dev.txt
# ---- Standard input and pipes ----

# pipes NAME PROCESSES FLAGS...: calls run with the JSON lines of the file $lines on standard input.
lines=$work/corpus/a.jsonl
pipes() { run "$2" "$1" --data-field body --steps 6 --reproducible "${@:3}" <"$lines"; }
pipes file 1 --data corpus/a.jsonl --data-cache cache1
pipes piped 1 --data - --save-every 4
same_bits file piped
cmp -s piped/stdin corpus/a.jsonl || fail "piped/stdin differs from standard input"
run 1 fifo --data-field body --steps 6 --reproducible --data <(cat corpus/a.jsonl)
same_bits file fifo
# A resumed run reads its own copy of the data, on both ranks, whatever is on standard input.
lines=/dev/null
cp -r piped rest_of_pipe && rm -r rest_of_pipe/checkpoints/step_00000006
pipes rest_of_pipe 2 --data - --resume auto
grep -qF "rest_of_pipe/stdin, which an earlier run read from standard input" output || fail "no word of the copy"
last() { sed -nE 's/^\{"step": 6, "loss": ([0-9.]+).*/\1/p' "$1/metrics.jsonl"; }
awk -v a="$(last file)" -v b="$(last rest_of_pipe)" 'BEGIN { d = a - b; exit !(a > 0 && d * d < 1e-8 * a * a) }' ||
  fail "a resumed run goes on with other data: $(last file) and $(last rest_of_pipe)"
refused 65 "standard input: empty" --data - </dev/null
touch refused/stdin.part
refused 65 "an earlier run was killed while it read standard input" --data - --resume auto </dev/null
rm -r refused
head -n 50 corpus/a.jsonl | sed 's/"body"/"text"/' >texts.jsonl
{ echo '{"shale.data": "begin"}'; cat texts.jsonl; } >cut.jsonl
refused 65 "standard input: ends after 51 lines without the last line of shale.data" --data - <cut.jsonl
[[ ! -e refused/stdin && ! -e refused/stdin.part ]] || fail "a stream that was cut is kept"
refused 65 "cut.jsonl: ends after 51 lines without the last line of shale.data" --data cut.jsonl
launch 2 "$train" "${common[@]}" --steps 1 --out refused --data - <cut.jsonl >output 2>&1
[[ $? -eq 64 ]] || fail "--data - on two ranks: no exit code 64"
grep -qF -- "--data - needs one rank (found 2)" output || fail "two ranks read a pipe"

[[ ! -e refused/data-cache || -z $(ls refused/data-cache) ]] || fail "something half-written is left"

finish
