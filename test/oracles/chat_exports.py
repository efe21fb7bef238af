"""Runs chat models trained and exported by Shale with transformers and llama.cpp.

test/support/chat_exports.sh makes the models. Both programs use only the exported files, on the
conversations that the models have learned. Prompts must have the same tokens in both, and so must
answers, which must end by themselves and match `shale generate --chat`. Differences go to stderr
and fail the script. Prints a line per model with the number of answers, and the begin and end tokens in
the exported files, which test/cli/chat_exports.sh checks without Python.
"""

import json
import pathlib
import subprocess
import sys
import tempfile
import urllib.request

import transformers
import xllamacpp

TESTS = pathlib.Path(__file__).resolve().parents[1]
PROGRAMS = [TESTS.parent / "build" / preset / "bin" for preset in ("release", "dev")]
STEPS, TOKENS = 300, 80


def questions(chats):
    """Yields each conversation's messages before each of its answers."""
    for line in chats.read_text().splitlines():
        messages = json.loads(line)["messages"]
        for i, message in enumerate(messages):
            if message["role"] == "assistant":
                yield messages[:i], message["content"]


class Transformers:
    def __init__(self, folder):
        self.tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        self.model = transformers.AutoModelForCausalLM.from_pretrained(folder)
        ends = self.model.generation_config.eos_token_id
        self.ends = ends if isinstance(ends, list) else [ends]

    def answer(self, messages):
        prompt = self.tokenizer.apply_chat_template(
            messages, add_generation_prompt=True, return_tensors="pt", return_dict=True)
        out = self.model.generate(**prompt, do_sample=False, max_new_tokens=TOKENS)[0].tolist()
        size = prompt["input_ids"].shape[1]
        return out[:size], out[size:], self.tokenizer.decode(out[size:], skip_special_tokens=True)


class LlamaCpp:
    def __init__(self, file):
        params = xllamacpp.CommonParams()
        params.model.path = str(file)
        params.n_ctx, params.n_parallel, params.n_gpu_layers = 128, 1, 0
        params.warmup, params.use_jinja, params.verbosity = False, True, 0
        self.server = xllamacpp.Server(params)

    def ask(self, what, values):
        request = urllib.request.Request(f"{self.server.listening_address}/{what}",
                                         json.dumps(values).encode(), {"Content-Type": "application/json"})
        with urllib.request.urlopen(request) as answer:
            return json.load(answer)

    def answer(self, messages):
        text = self.ask("apply-template", {"messages": messages})["prompt"]
        prompt = self.ask("tokenize", {"content": text, "add_special": True, "parse_special": True})
        sampling = {"temperature": 0, "n_predict": TOKENS, "max_tokens": TOKENS}
        out = self.ask("completion", {"prompt": text, "return_tokens": True, **sampling})
        chat = self.ask("v1/chat/completions", {"messages": messages, **sampling})["choices"][0]
        stops = out["stop_type"] == "eos" and chat["finish_reason"] == "stop"
        same = chat["message"]["content"] == out["content"]
        return prompt["tokens"], out["tokens"] if stops and same else None, out["content"]


def by_shale(program, run, messages):
    """Answer of `shale generate` to a conversation."""
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as file:
        file.write(json.dumps({"messages": messages}) + "\n")
        file.flush()
        out = subprocess.run([program, "generate", run, "--prompts", file.name, "--temperature", "0",
                              "--tokens", str(TOKENS), "--device", "cpu"],
                             check=True, capture_output=True, text=True).stdout
    return json.loads(out)["text"]


def main():
    programs = next((p for p in PROGRAMS if (p / "train_lm").exists()), None)
    if programs is None:
        sys.exit(f"no programs in {PROGRAMS[0]}; build the targets train_lm and shale")
    transformers.logging.set_verbosity_error()
    different = 0
    with tempfile.TemporaryDirectory() as folder:
        work = pathlib.Path(folder)
        subprocess.run([TESTS / "support/chat_exports.sh", programs, work, str(STEPS)], check=True,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for model in sorted(path.parent for path in work.glob("*/model.gguf")):
            readers = {name: Transformers(model / name) for name in ("by_train_lm", "by_ckpt")}
            readers["model.gguf"] = LlamaCpp(model / "model.gguf")
            right = dict.fromkeys([*readers, "shale"], 0)
            for messages, learnt in questions(work / "chats.jsonl"):
                answers = {name: reader.answer(messages) for name, reader in readers.items()}
                prompt, tokens, _ = answers["by_train_lm"]
                answers["shale"] = (prompt, tokens, by_shale(programs / "shale", model / "run", messages))
                for name, answer in answers.items():
                    stops = tokens[-1] in readers["by_train_lm"].ends and len(tokens) < TOKENS
                    if stops and answer == (prompt, tokens, learnt):
                        right[name] += 1
                    else:
                        different += 1
                        print(f"{model.name}/{name}: {messages[-1]['content']!r}: {answer}, "
                              f"expected {(prompt, tokens, learnt)}", file=sys.stderr)
            for name, count in right.items():
                print(f"answers/{model.name}/{name}", count)
        sys.stdout.flush()
        subprocess.run(["perl", TESTS / "support/export_facts.pl", "gpt2", "llama", "own", "qwen"], cwd=work,
                       check=True)
    sys.exit(different > 0)


if __name__ == "__main__":
    main()
