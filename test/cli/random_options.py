#!/usr/bin/env python3
"""Draws options of train_lm at random and runs them.

A draw must either be refused, with exit code 64, one line and no step, or train with losses that
match, up to rounding, those of one rank with the same options but without axes, ZeRO stages and
offload. Where docs/explanation/numerics.md promises equal bits, the losses must equal those
of the same mesh in one process, or of the same processes without ZeRO stages and offload.

A draw that contains both options of a row of docs/reference/compatibility.md must be refused, with
the message of such a row or with one of OTHER_REASONS. Each row is also tried alone: its two
options, with only the options that they need, must be refused with the row's message. Prints which
draws trained and which were refused, and why.

    random_options.py BIN_DIR [--draws N] [--seed N|random] [--only N] [--jobs N] [--page FILE]
"""

import argparse
import collections
import concurrent.futures
import json
import math
import os
import random
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import threading

# Each draw takes one value of each group below, as flags. The number says how many of 60
# consecutive draws use a value; the first value gets the remaining draws. The program itself
# decides which values are compatible. If a flag appears twice, the last one counts. {init} is a
# folder written by --export for the draw's --model; {work} is an empty folder.
DRAWS_OF_DECK = 60
OPTIONS = {
    "zero": {
        "": 0, "--zero 1": 5, "--zero 2": 5, "--zero 3": 4, "--zero 1 --shard-ranks 1": 4,
        "--zero 2 --shard-ranks 2": 2, "--zero 3 --shard-ranks 2": 2,
        "--zero 3 --reshard-ranks 2": 3},
    "offload": {
        "": 0, "--offload optimizer": 5, "--offload optimizer --offload-ratio 0.5": 3,
        "--zero 3 --offload params": 4, "--zero 3 --offload nvme:{work}": 5},
    "model": {
        "": 0, "--dropout 0.1": 8, "--model llama-nano": 10, "--model llama-nano --window 8": 6,
        "--model moe-nano": 6, "--model moe-nano --router-bias-rate 0.01 --router-z-loss 0.1": 3,
        "--model moe-nano --expert 2": 6},
    "rows": {
        "": 0, "--document-mask --document-token 10": 5,
        "--packing best-fit --document-token 10": 5},
    "adapters": {
        "": 0, "--init {init} --lora-rank 4": 7,
        "--init {init} --lora-rank 4 --frozen-dtype nf4": 6},
    "dtype": {
        "": 0, "--dtype tf32": 5, "--dtype bf16": 14, "--dtype fp16": 6,
        "--dtype fp8 --fp8-kept-blocks 0": 4,
        "--dtype fp8 --fp8-kept-blocks 0 --fp8-scaling tensor": 3},
    "grad-dtype": {"": 0, "--grad-dtype bf16": 5},
    "optimizer": {
        "": 0, "--optimizer adamw-bf16": 5, "--optimizer adamw-8bit": 5, "--optimizer lion": 4,
        "--optimizer adafactor": 5, "--optimizer sgd": 4, "--optimizer muon": 5,
        "--optimizer lamb": 5,
        "--optimizer 1bit-adam --freeze-step 9 --zero 1 --shard-ranks 1": 6},
    "step": {
        "": 0, "--clip 0": 4, "--skip-outliers 6": 4, "--ema 0.9": 4,
        "--schedule wsd --decay-steps 2": 4, "--batch-ramp 8:2": 6},
    "micro-batch": {"--micro-batch 2": 0, "--micro-batch 1": 18, "--micro-batch 4": 12},
    "reproducible": {"": 0, "--reproducible": 14},
    "loss-chunk": {"": 0, "--loss-chunk 16": 8, "--loss-chunk 50": 4},
    "offload-activations": {"": 0, "--offload-activations": 7},
    "recompute": {"": 0, "--recompute selective": 10, "--recompute full": 12},
    "workers": {"": 0, "--workers 2": 8, "--workers 4": 6},
    "no-overlap": {"": 0, "--no-overlap": 8},
    "checks": {"": 0, "--check-replicas 2": 6, "--report-every 2": 5, "--eval-every 2": 5},
    "axes": {
        "--processes 4": 0, "--processes 2": 5, "--processes 1": 4,
        "--processes 1 --tensor 2 --context 4 --context-kind ring": 2,
        "--processes 1 --tensor 4": 1, "--processes 2 --tensor 2": 1,
        "--processes 2 --tensor 4 --context 2": 1,
        "--processes 2 --tensor 2 --context 2 --ranks-per-process 4": 4,
        "--processes 4 --tensor 4 --ranks-per-process 2": 2,
        "--processes 4 --tensor 2": 3,
        "--processes 2 --context 2": 1, "--processes 2 --context 4": 1,
        "--processes 4 --context 4 --context-kind ring": 3,
        "--processes 4 --context 4 --context-kind ulysses --ranks-per-process 2": 3,
        "--processes 4 --context 4 --context-kind ulysses+ring": 3,
        "--processes 4 --tensor 2 --context 2": 2, "--processes 2 --pipeline 2": 1,
        "--processes 2 --pipeline 2 --pipeline-schedule gpipe --tensor 2 "
        "--zero 1 --offload none": 3,
        "--processes 4 --pipeline 2 --pipeline-schedule interleaved --pipeline-chunks 2 "
        "--zero 1 --offload none": 3,
        "--processes 4 --pipeline 2 --pipeline-schedule zb-h1 --context 2 "
        "--zero 1 --offload none --recompute selective": 3,
        "--processes 4 --pipeline 2 --pipeline-schedule zbv --tensor 2 --ranks-per-process 2 "
        "--zero 1 --offload none --recompute none": 3},
}
# Flags that choose where values are computed and stored. A one-process run without them has the
# same losses up to rounding.
AXES = ["processes", "ranks-per-process", "pipeline", "pipeline-schedule", "pipeline-chunks",
        "expert"]
KEPT = """zero shard-ranks reshard-ranks offload offload-ratio offload-activations recompute
    workers no-overlap check-replicas report-every""".split()
# Further flags that affect rounding of losses.
ROUNDING = "reproducible loss-chunk tensor context context-kind".split()
# Relative error of a loss that rounding may cause in so few steps: several times the largest error
# in 900 draws. It exceeds the error of an fp32 sum, because optimizers that use the sign of a
# gradient may move a parameter with a gradient near 0 in either direction.
TOLERANCE = {"fp32": 1e-4, "tf32": 5e-3, "bf16": 5e-3, "fp16": 5e-3, "fp8": 1e-2}
# Beginnings of other error messages, which do not name two incompatible options: options without
# effect unless another is set, sizes that do not fit, and features that a model lacks. N stands for
# a number.
OTHER_REASONS = [
    r"--offload-ratio is N, which needs --offload",
    r"--reshard-ranks is N, but --zero N keeps parameters whole",
    r"--check-replicas is N, but --zero N leaves one copy of each parameter",
    r"--optimizer 1bit-adam needs several replicas of the model, found one",
    r"--(shard|reshard)-ranks is N, expected a divisor of the N ranks? ",
    r"--expert N: expected a divisor of the N ranks? ",
    r"a batch of batch-ramp is N, expected a multiple of micro-batch N x N ranks?",
    r"(partition|sharding): \S+ cannot be split into N parts along dimension N",
    r"context: ulysses splits N key heads over N ranks",
    r"optimizer: \S+ is (cut into N leaves|on N tensor ranks) with rows of N elements, and N neighbours ",
    r"--dtype fp8: \S+ is a MoE layer",
    r"--window is N, the model in PATH has N",
]
# Tables of docs/reference/compatibility.md: a header, then rows of two options, each with all of its values
# or with the values that the row lists.
PAGE = os.path.join(os.path.dirname(os.path.abspath(__file__)),
                    "../../docs/reference/compatibility.md")
HEAD = ["| option | with | because | which | use |", "|---|---|---|---|---|"]
SIDE = r"`--([a-z0-9-]+)(?: ([a-z0-9+-]+(?:, [a-z0-9+-]+)*))?`"
ROW = re.compile(rf"\| {SIDE} \| {SIDE} \| ([^|]+) \| (?:cannot be|not built) \| ([^|]+) \|")
Row = collections.namedtuple("Row", "sides because use")
# values: the values listed in the row; empty means every value that is not in UNUSED.
Side = collections.namedtuple("Side", "flag values")
UNUSED = {"offload": "none", "ranks-per-process": "1"}  # values with which an option is not in use
# For a row of the table that lists no values: the flags with which an option is tried, including
# other flags that it needs.
ALONE = {
    "attention-pattern": "--attention-pattern local", "batch-ramp": "--batch-ramp 8:2",
    "context": "--context 2", "context-kind": "--context 2", "cuda-graph": "--cuda-graph",
    "ema": "--ema 0.9", "expert": "--expert 2", "frozen-dtype": "--init {init} --lora-rank 4",
    "loss-chunk": "--loss-chunk 16",
    "lora-dropout": "--init {init} --lora-rank 4 --lora-dropout 0.1",
    "offload": "--offload optimizer", "offload-activations": "--offload-activations",
    "outer-every": "--outer-every 2", "pipeline": "--processes 2 --pipeline 2",
    "quantize-gathers": "--quantize-gathers 8", "quantize-reductions": "--quantize-reductions 8",
    "ranks-per-process": "--tensor 2 --ranks-per-process 2", "reproducible": "--reproducible",
    "reshard-ranks": "--reshard-ranks 2", "sample-tokens": "--sample-tokens 5",
    "skip-outliers": "--skip-outliers 6", "tensor": "--tensor 2",
}
LEFT_OUT = "cuda-graph"  # --device cpu refuses it in any case
STEPS, GLOBAL_BATCH = 4, 16
COMMON = ("--layers 2 --width 64 --heads 4 --seq-len 32 --warmup-steps 0 --lr 5e-3 "
          f"--steps {STEPS} --global-batch {GLOBAL_BATCH} --device cpu --threads 1 --no-save "
          "--quiet").split()
TIMEOUT_S = 120

environment = dict(os.environ, OMP_NUM_THREADS="1", OMPI_ALLOW_RUN_AS_ROOT="1",
                   OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
                   OMPI_MCA_odls_base_sigkill_timeout="0")  # ends a failed job immediately


def values_of(seed, number):
    """Returns the value of each option of OPTIONS in draw `number`."""
    chosen = []
    for option, weights in OPTIONS.items():
        deck = [value for value, count in weights.items() for _ in range(count)]
        deck += [next(iter(weights))] * (DRAWS_OF_DECK - len(deck))
        random.Random(f"{seed} {number // DRAWS_OF_DECK} {option}").shuffle(deck)
        chosen.append(deck[number % DRAWS_OF_DECK])
    return chosen


def flags_of(values):
    """Returns the flags of a draw, such as {"zero": "1", "reproducible": ""}."""
    flags = {}
    for words in " ".join(values).split("--")[1:]:
        flag, _, value = words.strip().partition(" ")
        flags[flag] = value
    return flags


def spell(flags):
    return [word for flag, value in flags.items() for word in ("--" + flag, value) if word]


def size_of(flags, name, default=1):
    return int(flags.get(name, default))


def ranks_of_model(flags):
    return math.prod(size_of(flags, axis) for axis in ("tensor", "context", "pipeline"))


def ranks_per_process(flags):
    too_few = max(1, ranks_of_model(flags) // size_of(flags, "processes"))
    return size_of(flags, "ranks-per-process", too_few)


def data_ranks(flags):
    return size_of(flags, "processes") * ranks_per_process(flags) // ranks_of_model(flags)


def read_rows(page):
    rows = []
    with open(page, encoding="utf-8") as lines:
        for line in map(str.rstrip, lines):
            if "|" not in line or line in HEAD:
                continue
            found = ROW.fullmatch(line)
            if not found:
                sys.exit(f"{page}: this is no row as those of compatibility.md:\n{line}")
            *sides, because, use = found.groups()
            sides = [Side(flag, values.split(", ") if values else [])
                     for flag, values in (sides[:2], sides[2:])]
            rows.append(Row(sides, because, use))
            if not all(refusals_of(rows[-1:], flags) for flags in draws_of(rows[-1])):
                sys.exit(f"{page}: ALONE does not say how to try options of this row:\n{line}")
    if not rows:
        sys.exit(f"{page}: found no rows")
    return rows


def draws_of(row):
    """Returns draws that try a row alone: all pairs of values of its two options."""
    first, second = ([f"{ALONE.get(flag, '')} --{flag} {value}" for value in values] or
                     [ALONE.get(flag, "")] for flag, values in row.sides)
    return [flags_of([one, other]) for one in first for other in second]


def text_of(side, flags):
    """Returns an option of a row as in error messages, "--zero 3"; empty if the draw lacks it."""
    value = flags.get(side.flag)
    if side.flag == "ranks-per-process":
        value = str(ranks_per_process(flags))
    if value in (None, UNUSED.get(side.flag)) or (side.values and value not in side.values):
        return ""
    return f"--{side.flag} {value}".rstrip()


def refusals_of(rows, flags):
    """Returns the messages of the rows whose two options are both in a draw."""
    pairs = [(row, *(text_of(side, flags) for side in row.sides)) for row in rows]
    return [f"{a} is incompatible with {b}: {row.because}; use {row.use}"
            for row, a, b in pairs if a and b]


def has_bits_of_one_process(flags):
    """True if docs/explanation/numerics.md promises the bits of the same mesh in one process."""
    if size_of(flags, "expert") > 1:
        return False
    if "grad-dtype" in flags and size_of(flags, "tensor") * size_of(flags, "context") > 1:
        return False
    is_one = data_ranks(flags) == 1 and "pipeline" not in flags
    if flags.get("optimizer") == "adafactor" and not (is_one and "context" not in flags):
        return False
    # All drawn models tie the output layer to the embedding. Several ranks therefore give the bits
    # of one rank only with --reproducible.
    return is_one or "reproducible" in flags


def has_bits_of_all_kept(flags):
    """True if numerics.md promises the bits of a run without ZeRO stages and offload."""
    zero = size_of(flags, "zero", 0)
    if flags.get("optimizer") == "adafactor" and zero > 0:
        return False  # Adafactor's statistics depend on the boundaries of shards
    if "shard-ranks" in flags and "grad-dtype" in flags:
        return False
    micro_batches = GLOBAL_BATCH // (size_of(flags, "micro-batch") * data_ranks(flags))
    return zero < 2 or micro_batches == 1 or "reproducible" in flags


def without(flags, dropped):
    left = {flag: value for flag, value in flags.items() if flag not in dropped}
    # Until --freeze-step, 1bit-adam equals AdamW bit for bit.
    if left.get("optimizer") == "1bit-adam":
        del left["optimizer"], left["freeze-step"]
    return left


def references_of(flags):
    """Returns the reference runs of a draw: their flags, and whether bits must be equal."""
    wanted = [(without(flags, AXES + KEPT + ROUNDING), False)]
    if has_bits_of_all_kept(flags):
        is_one = has_bits_of_one_process(flags)
        wanted.append((without(flags, AXES + KEPT if is_one else KEPT), True))
    return wanted


def init_folder(flags, work):
    return os.path.join(work, "init-" + flags.get("model", "nano"))


class Run:
    """A run of train_lm: its command, exit code and output, and the losses and their bits of each
    step, if it has any."""

    def __init__(self, flags, work):
        self.out = tempfile.mkdtemp(dir=work)
        processes = flags.get("processes", "1")
        words = spell({flag: value for flag, value in flags.items() if flag != "processes"})
        words = [word.format(init=init_folder(flags, work), work=self.out) for word in words]
        mpirun = f"mpirun -q --oversubscribe --bind-to none -np {processes}".split()
        self.command = [*(mpirun if processes != "1" else []),
                        os.path.join(options.bin_dir, "train_lm"),
                        "--data", os.path.join(work, "text.txt"), *COMMON, *words,
                        "--out", self.out]
        try:
            done = subprocess.run(self.command, env=environment, stdin=subprocess.DEVNULL,
                                  capture_output=True, text=True, timeout=TIMEOUT_S)
            self.code = done.returncode
            said = (done.stdout + done.stderr).replace(self.out, "{work}")
            # The draws have more ranks than this machine may have CPUs.
            self.said = re.sub(r"(?m)^warning: \d+ ranks share the .*\n", "", said).strip()
        except subprocess.TimeoutExpired:
            self.code, self.said = None, f"no end after {TIMEOUT_S} s"
        rows = []
        metrics = os.path.join(self.out, "metrics.jsonl")
        if os.path.exists(metrics):
            with open(metrics, encoding="utf-8") as lines:
                rows = [json.loads(line) for line in lines]
        self.bits = [row["loss_bits"] for row in rows if "loss_bits" in row]
        self.losses = [row.get("loss", row.get("val_loss")) for row in rows
                       if "loss" in row or "val_loss" in row]
        shutil.rmtree(self.out)

    def __str__(self):
        return shlex.join(self.command)


class References:
    """Reference runs, each of which is run once and shared by several draws."""

    def __init__(self, work):
        self.work, self.runs, self.lock = work, {}, threading.Lock()

    def of(self, flags):
        key = " ".join(spell(dict(sorted(flags.items()))))
        with self.lock:
            run = self.runs.setdefault(key, concurrent.futures.Future())
            is_mine = not hasattr(run, "is_made")
            run.is_made = True
        if is_mine:
            try:
                run.set_result(Run(flags, self.work))
            except BaseException as error:
                run.set_exception(error)
        return run.result()


def tolerance_of(flags):
    is_coarse = ("grad-dtype" in flags or
                 flags.get("optimizer") in ["adamw-bf16", "adamw-8bit"])
    return max(TOLERANCE[flags.get("dtype", "fp32")], TOLERANCE["bf16" if is_coarse else "fp32"])


def difference(run, want):
    return max(abs(a - b) / abs(b) for a, b in zip(run.losses, want.losses))


def message_of(line):
    """Returns the message of a refusal, without the text that all refusals have."""
    return re.sub(r"^error: | \(rank \d+ of \d+\)$", "", line)


def reason_of(line):
    """Returns a refusal with numbers and paths replaced, to count equal reasons together."""
    line = re.sub(r"\S*/\S+", "PATH", message_of(line))
    return re.sub(r"\b\d+(\.\d+)?\b", "N", line)


def what_is_wrong(run, refusals, others):
    """Returns what is wrong with a refusal; refusals: messages of rows, others: other reasons."""
    if not run.said.startswith("error: ") or "\n" in run.said or run.losses:
        return f"refused after {len(run.bits)} steps, expected one line before any:\n{run.said}"
    reason = reason_of(run.said)
    if message_of(run.said) in refusals or any(re.match(other, reason) for other in others):
        return ""
    wanted = "".join("\n    " + refusal for refusal in refusals) or " there is no row"
    or_other = "one of OTHER_REASONS, or " if others else ""
    return f"refused:\n{run.said}\nwant {or_other}what a row of these options says:{wanted}"


def check(flags, refusals, others, references, work):
    """Returns the outcome of a draw, "trained" with the largest difference of losses, "refused"
    with the message, or "failed"; and what is wrong with it, if anything."""
    run = Run(flags, work)
    if run.code == 64:
        wrong = what_is_wrong(run, refusals, others)
        return "refused", run.said, wrong and f"{run}\n{wrong}"
    if refusals:
        return "failed", 0, (f"{run}\nexit code {run.code} after {len(run.bits)} steps, expected it "
                             f"refused:\n{refusals[0]}")
    if run.code != 0 or len(run.bits) != STEPS:
        return "failed", 0, f"{run}\nexit code {run.code} after {len(run.bits)} steps: {run.said}"
    largest = 0
    for wanted_flags, to_the_bit in references_of(flags):
        want = references.of(wanted_flags)
        if want.code != 0 or len(want.losses) != len(run.losses):
            return "trained", 0, f"{run}\ntrained, but not this:\n{want}\n{want.said}"
        largest = max(largest, difference(run, want))
        if difference(run, want) > tolerance_of(flags) or (to_the_bit and run.bits != want.bits):
            wanted = "the same bits" if to_the_bit else f"the same within {tolerance_of(flags):g}"
            return "trained", largest, (f"{run}\nlosses {run.losses} {run.bits}\nwant {wanted} as\n"
                                        f"       {want.losses} {want.bits}\n{want}")
    return "trained", largest, ""


def try_rows(rows, pool, work):
    """Tries each row alone. Returns the rows that were not refused with their message."""
    names = [" with ".join(f"--{flag} {', '.join(values)}".rstrip() for flag, values in row.sides)
             for row in rows]
    left_out = [name for name in names if LEFT_OUT in name]
    draws = [(name, refusals_of([row], flags), flags) for name, row in zip(names, rows)
             for flags in draws_of(row) if name not in left_out]
    failures = set()
    outcomes = pool.map(lambda draw: check(draw[2], draw[1], [], None, work), draws)
    for (name, *_), (_, _, wrong) in zip(draws, outcomes):
        if wrong:
            failures.add(name)
            print(f"FAILED row {name}:\n{wrong}\n", flush=True)
    tried = len(names) - len(left_out)
    print(f"{tried} rows tried alone, {tried - len(failures)} refused as they say; {len(left_out)} "
          f"left out, as --device cpu does not take --{LEFT_OUT}:\n    {', '.join(left_out)}")
    return sorted(failures)


def make_inputs(work):
    with open(os.path.join(work, "text.txt"), "w", encoding="utf-8") as text:
        text.writelines(f"line {i} of a text that is long enough\n" for i in range(1, 601))
    for model in {flags_of([value]).get("model", "nano") for value in OPTIONS["model"]}:
        flags = {"model": model, "steps": "1", "export": init_folder({"model": model}, work)}
        run = Run(flags, work)
        if run.code != 0:
            sys.exit(f"{run}\nexit code {run.code}: {run.said}")


def read_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("bin_dir", help="where train_lm is")
    parser.add_argument("--draws", type=int, default=DRAWS_OF_DECK, help="how many")
    parser.add_argument("--seed", default="680", help="of the draws, or random")
    parser.add_argument("--only", type=int, help="run this draw alone")
    parser.add_argument("--jobs", type=int, default=1, help="draws at a time")
    parser.add_argument("--page", default=PAGE, help="the tables: docs/reference/compatibility.md")
    return parser.parse_args()


def main():
    seed = str(random.randrange(10**6)) if options.seed == "random" else options.seed
    numbers = range(options.draws) if options.only is None else [options.only]
    print(f"seed {seed}, {len(numbers)} draws", flush=True)
    rows = read_rows(options.page)
    count, trained, refused, failures = 0, set(), collections.Counter(), []
    largest = collections.Counter()
    with tempfile.TemporaryDirectory() as work, \
            concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        make_inputs(work)
        references = References(work)
        draws = [flags_of(values_of(seed, number)) for number in numbers]
        outcomes = pool.map(lambda flags: check(flags, refusals_of(rows, flags), OTHER_REASONS,
                                                references, work), draws)
        for number, flags, (became, what, wrong) in zip(numbers, draws, outcomes):
            if became == "trained":
                trained.update(flags.items())
                count += 1
                key = f"{tolerance_of(flags):g}"
                largest[key] = max(largest[key], what)
            if became == "refused":
                refused[reason_of(what)] += 1
            if wrong:
                failures.append(number)
                print(f"FAILED draw {number}; repeat it with\n    {__file__} {options.bin_dir} "
                      f"--seed {seed} --only {number}\n{wrong}\n", flush=True)
            elif options.only is not None:
                print(f"{became}: {' '.join(spell(flags))}: {what}")
        if options.only is None:
            failures += try_rows(rows, pool, work)

    print(f"\n{count} trained, {sum(refused.values())} refused, {len(failures)} failed")
    for key, value in sorted(largest.items()):
        print(f"  largest difference of losses where {key} is allowed: {value:.2g}")
    for reason, times in refused.most_common():
        print(f"{times:5}  {reason[:150]}")
    if options.only is None:
        if 2 * count < len(draws):
            failures.append("half")
            print("FAILED: fewer than half of the draws trained")
        wanted = {item for values in OPTIONS.values() for value in values
                  for item in flags_of([value]).items()}
        for flag, value in sorted(wanted - trained):
            failures.append(flag)
            print(f"FAILED: no draw trained with --{flag} {value}")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    options = read_arguments()
    main()
