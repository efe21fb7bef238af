#!/usr/bin/env python3
"""Compares bench_tokenizer with tiktoken: same vocabulary and text, one thread, alternating.

    python3 -m venv venv && venv/bin/pip install tiktoken
    venv/bin/python tokenizer_cpu.py BENCH_TOKENIZER cl100k_base.tiktoken TEXT [--rounds 5]

Both must produce the same number of tokens. Prints the median rates of the rounds and their ratio.
"""

import argparse
import base64
import json
import pathlib
import statistics
import subprocess
import tempfile
import time

PATTERNS = {  # the patterns of tiktoken_ext/openai_public.py
    50256: r"""'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s""",
    100256: r"""'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+"""
            r"""| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s""",
}


def main():
    import tiktoken
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("vocabulary")
    parser.add_argument("text")
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    lines = pathlib.Path(args.vocabulary).read_bytes().split(b"\n")
    ranks = {base64.b64decode(token): int(rank)
             for token, rank in (line.split() for line in lines if line)}
    theirs = tiktoken.Encoding("bench", pat_str=PATTERNS[len(ranks)], mergeable_ranks=ranks,
                               special_tokens={})
    text = pathlib.Path(args.text).read_text()
    size = len(text.encode())
    ours_s, theirs_s = [], []
    for _ in range(args.rounds):
        with tempfile.TemporaryDirectory() as folder:
            rows = pathlib.Path(folder, "rows.json")
            subprocess.run([args.program, "--tokenizer", args.vocabulary, "--text", args.text,
                            "--repeats", "1", "--json", rows], check=True, capture_output=True)
            row = json.loads(rows.read_text())["rows"][0]
        start = time.perf_counter()
        tokens = theirs.encode_ordinary(text)
        theirs_s.append(time.perf_counter() - start)
        ours_s.append(row["seconds"])
        assert len(tokens) == row["tokens"], (len(tokens), row["tokens"])
    rate = lambda seconds: size / statistics.median(seconds) / 1e6
    ratio = statistics.median(b / a for a, b in zip(ours_s, theirs_s))
    print(f"{size} bytes: {rate(ours_s):.1f} MB/s, tiktoken {rate(theirs_s):.1f} MB/s, "
          f"{ratio:.2f} times as fast")


if __name__ == "__main__":
    main()
