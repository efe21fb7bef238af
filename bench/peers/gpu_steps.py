"""Training steps of PyTorch on one GPU, for comparison with Shale's: code shared by the scripts of
each kind of model.

A step is forward and backward of all micro-batches of the global batch, clipping at 1.0, fused
AdamW and clearing the gradients, with bf16 autocast over f32 parameters. A mode is a way to run the
model; each is measured in its own process. Rows go to standard output, one per line, and to a file
as they are measured; --resume continues an interrupted file. A mode that fails has a row with its
error:

  impl, mode, model, dtype, micro_batch, global_batch, params
  step_ms         median over the steps, by device events; step_ms_min the fastest
  first_step_ms   includes compilation
  peak_bytes      device memory held by PyTorch
  loss            after the last step; very different losses mean different work
"""

import dataclasses
import pathlib
import statistics
import sys
import time
import typing

import torch
from gpu_timing import machine, require_gpu, summary
from rows_file import RowsFile
from supervisor import ANOTHER, Reporter, supervise
from torch import nn

USAGE = 64  # exit code of Shale's programs for invalid arguments


@dataclasses.dataclass
class Work:
    """Training task of a mode: loss() of a micro-batch; rates(median in ms, number of parameters):
    additional fields of a row."""

    model: nn.Module
    loss: typing.Callable
    rates: typing.Callable


@dataclasses.dataclass
class Script:
    """Parts of a specific script: fields(args) of a row, including "model"; make_work(args,
    mode)."""

    program: str
    modes: tuple
    fields: typing.Callable
    make_work: typing.Callable


def usage_error(message):
    print(f"error: {message}", file=sys.stderr)
    sys.exit(USAGE)


def add_arguments(parser, script, micro_batch, global_batch_of):
    """global_batch_of: "sequences" or "images"."""
    parser.add_argument("--micro-batch", type=int, default=micro_batch)
    parser.add_argument("--global-batch", type=int,
                        help=f"{global_batch_of} a step; default: micro-batch")
    parser.add_argument("--steps", type=int, default=30, help="measured")
    parser.add_argument("--warmup", type=int, default=5, help="not measured")
    parser.add_argument("--modes", default=",".join(script.modes))
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE")
    parser.add_argument("--resume", action="store_true", help="continue an incomplete FILE")
    parser.add_argument("--row-time", type=float, default=400, metavar="SECONDS",
                        help="maximum time of a mode; then it counts as hung")
    parser.add_argument("--worker", type=int, help="for the program's own use")


def check(args, script):
    args.global_batch = args.global_batch or args.micro_batch
    if args.global_batch % args.micro_batch:
        usage_error(f"--global-batch: {args.global_batch}: expected a multiple of --micro-batch, "
                    f"{args.micro_batch}")
    if unknown := set(args.modes.split(",")) - set(script.modes):
        usage_error(f"--modes: {', '.join(sorted(unknown))}: expected some of "
                    f"{', '.join(script.modes)}")
    if args.warmup < 1 or args.steps < 1:
        usage_error("--warmup and --steps: expected at least 1")


def fields(args, script, mode):
    """Returns the fields of a row that are known before the measurement."""
    return {"impl": f"pytorch-{torch.__version__.split('+')[0]}", "mode": mode, "dtype": "bf16",
            **script.fields(args), "micro_batch": args.micro_batch,
            "global_batch": args.global_batch}


def measure(args, work):
    """Returns the measured fields of a row."""
    torch.set_float32_matmul_precision("high")
    on_gpu = args.device == "cuda"
    parameters = list(work.model.parameters())
    optimizer = torch.optim.AdamW(parameters, lr=1e-4, betas=(0.9, 0.95), weight_decay=0.1,
                                  fused=True)
    micro_batches = args.global_batch // args.micro_batch

    def step():
        for _ in range(micro_batches):
            with torch.autocast(args.device, dtype=torch.bfloat16):
                loss = work.loss()
            (loss / micro_batches).backward()
        nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss

    def timed():
        if not on_gpu:
            start = time.perf_counter()
            loss = step()
            return (time.perf_counter() - start) * 1e3, loss
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        loss = step()
        end.record()
        end.synchronize()
        return start.elapsed_time(end), loss

    first_ms, _ = timed()
    for _ in range(args.warmup - 1):
        step()
    times, losses = zip(*(timed() for _ in range(args.steps)))
    median = statistics.median(times)
    count = sum(parameter.numel() for parameter in parameters)
    return {
        "device": torch.cuda.get_device_name() if on_gpu else "cpu", "threads": 1,
        "params": count, "step_ms": round(median, 3), "step_ms_min": round(min(times), 3),
        **work.rates(median, count), "first_step_ms": round(first_ms, 1),
        "peak_bytes": torch.cuda.max_memory_allocated() if on_gpu else 0,
        "loss": round(losses[-1].item(), 5),
    }


def work_one(args, script):
    """Worker: measures the next missing mode. Returns its exit code."""
    require_gpu(args.device)
    reporter = Reporter(args.worker)
    there, _ = reporter.done_before(machine(args.device))
    left = [mode for mode in args.modes.split(",") if (mode,) not in there]
    for mode in left[:1]:
        row = fields(args, script, mode)
        reporter.say(begin=row)
        try:
            torch.manual_seed(0)
            reporter.say(row={**row, **measure(args, script.make_work(args, mode))})
        except Exception as error:  # out of memory, or backend not available
            reporter.say(row={**row, "error": summary(error)})
    if len(left) > 1:
        return ANOTHER
    reporter.say(end=True)
    return 0


def run(args, script):
    """Main function after argument parsing. Never returns."""
    if args.worker is not None:
        sys.exit(work_one(args, script))
    not_of_work = ("json", "resume", "row_time", "worker", "modes")
    options = {key: value for key, value in vars(args).items() if key not in not_of_work}
    rows = RowsFile(args.json, script.program, options, key=("mode",))
    code = supervise(sys.argv, rows, args.resume, args.row_time)
    if code == 0 and not any("step_ms" in row for row in rows.rows):
        print("error: no mode could be measured", file=sys.stderr)
        code = 1
    sys.exit(code)
