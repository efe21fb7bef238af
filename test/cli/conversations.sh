#!/usr/bin/env bash
# Tests conversations: how keys of messages and of lines affect training and shale generate; and
# where a tokenizer's beginning-of-text token is added in training, answers and scores.
source "$(dirname "${BASH_SOURCE[0]}")/../support/cli.sh"
shown=("$work/stderr" "$work/output")

shale="$BIN_DIR/shale"
cd "$work" || exit 1
perl -e 'srand(7); print "[user]some words ", int(rand(100)), "(f) [assistant]<r>\n" for 1 .. 200' >text.txt
"$shale" tokenizer train text.txt --vocab 300 --out plain.json \
  --special "<|endoftext|>,<s>,<|im_end|>" >output 2>&1 || { fail "no tokenizer"; finish; }
# Makes a copy of the tokenizer whose post-processor puts <s> before a text.
perl -pe 's/"post_processor":(null|\{[^{}]*\})/"post_processor":{"type":"TemplateProcessing",
  "single":[{"SpecialToken":{"id":"<s>","type_id":0}},{"Sequence":{"id":"A","type_id":0}}],
  "pair":[{"Sequence":{"id":"A","type_id":0}},{"Sequence":{"id":"B","type_id":1}}],
  "special_tokens":{"<s>":{"id":"<s>","ids":[1],"tokens":["<s>"]}}}/' plain.json >begun.json
grep -q TemplateProcessing begun.json || fail "no post-processor"
common=(--data text.txt --tokenizer begun.json --model llama-nano --layers 1 --width 32 --heads 2
  --kv-heads 1 --hidden 48 --seq-len 128 --steps 8 --micro-batch 1 --lr 1e-2 --no-save)
trains base 1 --export model
cp -r model plain_model
cp plain.json plain_model/tokenizer.json

template='{% for m in messages %}[{{ m.role }}]'
template+='{% if loop.first %}{% for t in tools or [] %}({{ t.function.name }}){% endfor %}{% endif %}'
template+='{% if m.reasoning_content %}<{{ m.reasoning_content }}>{% endif %}{{ m.content or "" }}'
template+='{% for c in m.tool_calls or [] %}{{ c.function | tojson }}{% endfor %}<|im_end|>{% endfor %}'
template+='{% if add_generation_prompt %}[assistant]{% endif %}'
printf '%s' "$template" >model/chat_template.jinja
cp model/chat_template.jinja plain_model
cp -r model written_model
printf '{{ bos_token }}%s' "$template" >written_model/chat_template.jinja

# ---- Training ----

common=(--task sft --init model --seq-len 128 --steps 2 --micro-batch 1 --threads 1 --lr 1e-3 --no-save
  --val-fraction 0 --packing none)
# teaches NAME REFERENCE LINE: training on LINE gives the losses of the run REFERENCE.
teaches() {
  tr '\n' ' ' <<<"$2" >want.jsonl
  tr '\n' ' ' <<<"$3" >line.jsonl
  trains "$1_want" 1 --data want.jsonl
  trains "$1" 1 --data line.jsonl
  same "$1" "$1_want"
}
say() { printf '{"role": "%s", "content": "%s"%s}' "$1" "$2" "${3:-}"; }
ask="$(say user 'some words')" again="$(say user 'more words')"
teaches weights \
  "{\"prompt\": [$ask, $(say assistant no), $again], \"completion\": [$(say assistant yes)]}" \
  "{\"messages\": [$ask, $(say assistant no ', "weight": 0'), $again, $(say assistant yes ', "weight": 1')]}"
call='<r>{\"name\": \"f\", \"arguments\": {\"x\": 1}}'
teaches calls \
  "{\"messages\": [$(say user '(f)some words'), $(say assistant "$call"), $(say tool 2),
   $(say assistant yes)]}" \
  "{\"tools\": [{\"function\": {\"name\": \"f\"}}], \"messages\": [$ask, {\"role\": \"assistant\", \"content\": null,
   \"reasoning_content\": \"r\", \"tool_calls\": [{\"function\": {\"name\": \"f\", \"arguments\": {\"x\": 1}}}]},
   $(say tool 2 ', "tool_call_id": "1", "name": "f"'), $(say assistant yes)]}"
teaches metadata "{\"messages\": [$ask, $(say assistant yes)]}" \
  "{\"prompt\": \"some words\", \"source\": \"x\", \"weight\": 1, \"messages\": [$ask, $(say assistant yes)]}"
grep -qF 'ignored keys: prompt (in 1 lines), source (in 1), weight (in 1)' stdout stderr ||
  fail "the log does not name the ignored keys"
teaches answers "{\"prompt\": \"some\", \"completion\": \" words\"}" \
  "{\"prompt\": \"some\", \"completion\": \" words\", \"id\": 3}"
for line in '"weight": 0.5' '"system": "Be brief."' '"images": ["a.png"]' '"text": "other"'; do
  echo "{\"messages\": [$ask, $(say assistant yes)], $line}" >line.jsonl
  run_training 1 refused --data line.jsonl
  [[ $code -eq 65 ]] || fail "$line: exit code $code, expected 65"
  grep -qF "line.jsonl:1: the key '$(cut -d'"' -f2 <<<"$line")'" stderr || fail "$line: it is not named"
done
# The beginning-of-text token appears once, whether the template or the post-processor adds it.
echo "{\"messages\": [$ask, $(say assistant yes)]}" >line.jsonl
trains begun 1 --data line.jsonl
trains written 1 --data line.jsonl --init written_model
trains plain 1 --data line.jsonl --init plain_model
same begun written
[[ $(rows begun) != "$(rows plain)" ]] || fail "the first token changes no loss"
# If the tokenizer lacks the template's tokens, only prompt and completion pairs can be trained on.
echo '{"prompt": "some", "completion": " words"}' >line.jsonl
rm plain_model/chat_template.jinja
trains unmarked 1 --data line.jsonl --init plain_model
echo "{\"messages\": [$ask, $(say assistant yes)]}" >line.jsonl
run_training 1 refused --data line.jsonl --init plain_model
grep -qF "line.jsonl:1: plain_model/tokenizer.json: no token <|im_start|>" stderr ||
  fail "a tokenizer without marks: it is not said"

# ---- Answers and scores ----

# answers MODEL LINE...: prints the "text" or "error" of each prompt.
answers() {
  printf '%s\n' "${@:2}" >prompts.jsonl
  "$shale" generate "$1" --prompts prompts.jsonl --temperature 0 --tokens 6 2>output
}
tools='"tools": [{"function": {"name": "f"}}]'
got=$(answers model "{\"messages\": [$ask], $tools}" "{\"prompt\": [$ask], $tools, \"id\": 1}" \
  "{\"messages\": [$(say user '(f)some words')]}") || fail "generate with tools: exit code $?"
[[ $(sort -u <<<"$got" | wc -l) -eq 1 && $(wc -l <<<"$got") -eq 3 ]] || fail "tools: $got"
got=$(answers model "{\"messages\": [$ask], \"system\": \"Be brief.\"}" '{"prompt": "some", "label": 1}' \
  '{"prompt": 3}' "{\"prompt\": \"some\", $tools}" "{\"prompt\": \"some\", \"completion\": \"words\"}")
[[ $? -eq 65 ]] || fail "keys of prompts: no exit code 65"
[[ $(sed -E 's/^\{"(text|error)":.*/\1/' <<<"$got" | tr '\n' ' ') == "error text error error text " ]] ||
  fail "keys of prompts: $got"
grep -qF "prompts.jsonl:1: the key 'system'" <<<"$got" || fail "keys of prompts: $got"
echo "{\"messages\": [$(say system brief), $ask]}" >prompts.jsonl
"$shale" generate model --chat --system "Be brief." --prompts prompts.jsonl --tokens 2 >output 2>&1
grep -qF "prompts.jsonl:1: found a system message and --system" output || fail "two system messages"
one=$(answers model "{\"messages\": [$ask]}")
[[ $one == "$(answers written_model "{\"messages\": [$ask]}")" ]] || fail "the first token is there twice"
scored() {
  "$shale" evaluate "$1" --data text.txt --json >output 2>&1 || fail "evaluate $1: exit code $?"
  sed -nE 's/.*"tokens": ?([0-9]+).*/\1/p' output
}
# With a beginning-of-text token, the first token of the text is predicted too.
[[ $(scored model) -eq $(($(scored plain_model) + 1)) ]] || fail "evaluate: $(scored model) tokens"
# Training puts the token at the start of each document.
mkdir texts && echo some words >texts/a.txt && echo more words >texts/b.txt
begins() {  # arguments: TOKENIZER FLAGS...: counts token 1 in the shards of both documents
  rm -rf shards
  "$shale" tokenize texts --tokenizer "$1" --val-fraction 0 --out shards "${@:2}" >output 2>&1 ||
    fail "tokenize with $1: exit code $?"
  perl -e 'local $/; binmode STDIN; my $data = <STDIN>; my @tokens = unpack("v*", substr($data, 1024));
    print scalar(grep { $_ == 1 } @tokens), $tokens[0] == 1 ? " first" : ""' <shards/tokens_000000.bin
}
[[ $(begins begun.json) == "2 first" ]] || fail "documents begin otherwise: $(begins begun.json)"
[[ $(begins plain.json) == 0 && $(begins begun.json --document-begin none) == 0 ]] ||
  fail "documents begin with a token that nobody puts there"
[[ $(begins plain.json --document-begin '<s>') == "2 first" ]] || fail "--document-begin <s>"

finish
