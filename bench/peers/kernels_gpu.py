#!/usr/bin/env python3
"""Other libraries' kernels on this machine's GPU, to set beside those of bench_kernels.

    python3 kernels_gpu.py [--filter REGEX] [--min-time SECONDS] [--json FILE [--resume]]

Shapes, names, FLOP and bytes are those of bench_kernels, so that bench_report can put the rows side
by side; both sides must be measured in one sitting. PyTorch is all it needs; other libraries count
where they are installed, and where not there is one row that says why. Rivals, by operation:

  attention   FlashAttention-3, -4 and -2; scaled_dot_product_attention with each backend: cuDNN,
              flash, efficient, math; FlexAttention, which torch.compile generates
  norms       QuACK, Liger-Kernel, Transformer Engine, Apex, F.layer_norm and F.rms_norm, eager and
              compiled, with the residual addition where Shale fuses it
  loss        QuACK, Liger-Kernel, F.cross_entropy with its backward, eager and compiled; the same
              with the classifier before it
  products    torch.matmul, which is cuBLAS; a linear layer with bias and GELU, those of SwiGLU with
              its activation, and a feed-forward layer, forward and backward, eager and compiled
  experts     grouped_mm, for SwiGLU's two with its activation; gathers, sorts and sums of a
              mixture of experts, eager and compiled
  images      convolutions, max pooling, batch norm with its residual and ReLU: PyTorch's, which are
              cuDNN's, channels_last
  the rest    SwiGLU alone, torch.optim.AdamW(fused=True) with f32 parameters, Tensor.copy_

"torch.compile (Triton)" is what PyTorch's compiler generates, which is Triton on a GPU.

A row has name, impl, version, dtype, time_us (median), time_us_min, gflop, gbytes, speed, unit,
launch ("stream", or "graph" where Python cannot launch as fast as the GPU runs and a CUDA graph
did better), host_bound and graph_error where they hold; or an error instead of all that is
measured. The figures that bench_report begins with come first. Rows go to standard output and to
FILE as they come; --resume goes on with a file that was cut. The rows are measured in another
process: one that crashes or hangs costs its row.

--filter is matched as bench_kernels does, with the names of its own cases too: gemm/hopper_nt/8192
chooses the rivals of that case, which are named gemm/square/8192. --device cpu --tiny tries the
script where there is no GPU; its times mean nothing.
"""

import argparse
import pathlib
import re
import sys

import cases_attention
import cases_experts
import cases_flat
import cases_images
import cases_norms
import cases_products
import torch
import torch._functorch.config
from gpu_timing import Clock, machine, require_gpu, result, summary
from rivals import DTYPES, Cases, figure_names, names_of_ours
from rows_file import RowsFile
from supervisor import ANOTHER, Reporter, supervise

USAGE = 64  # exit code of Shale's programs for arguments that make no sense


def all_cases(device, dtypes, tiny):
    """What a GPU is judged by, then the rest by dtype."""
    found = []
    for dtype in dtypes:
        cases = Cases(device, dtype, tiny)
        for module in (cases_attention, cases_products, cases_experts, cases_norms, cases_images,
                       cases_flat):
            module.add_all(cases)
        found += cases.list
    rank = {name: i for i, name in enumerate(figure_names())}
    return sorted(found, key=lambda case: rank.get(case.name, len(rank)))


def chosen_cases(args):
    try:
        wanted = re.compile(args.filter)
    except re.error as error:
        sys.exit(usage_error(f"--filter: {args.filter} is no regular expression: {error}"))
    cases = [case for case in all_cases(args.device, args.dtypes.split(","), args.tiny)
             if any(wanted.search(name) for name in names_of_ours(case.name))]
    if not cases:
        sys.exit(usage_error(f"--filter: no case of {args.dtypes} matches '{args.filter}'; "
                             "--list prints the names"))
    return cases


def usage_error(message):
    print(f"error: {message}", file=sys.stderr)
    return USAGE


# ---- The worker ----

def set_up_pytorch():
    torch.manual_seed(0)
    # As cuBLASLt in f32 products of bench_kernels: exact products, no tf32.
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.benchmark = True  # tries its algorithms when a shape is new
    # Compiled backwards run many times over one forward.
    torch._functorch.config.donated_buffer = False


def gpu_is_lost(device):
    """Whether an error has left the GPU in a state that no later call recovers from."""
    if device != "cuda":
        return False
    try:
        torch.cuda.synchronize()
        torch.zeros(1, device=device).item()
    except Exception:  # whatever it says
        return True
    torch.cuda.empty_cache()
    return False


class Measurer:
    """Measures cases one after the other and tells the supervisor of each."""

    def __init__(self, args, reporter, there):
        self.device, self.reporter, self.there = args.device, reporter, there
        self.clock = Clock(args.device, args.min_time)
        self.has = {}  # whether a library can be imported

    def check(self, library):
        """Leaves one row where the library cannot be imported."""
        if library in self.has:
            return self.has[library]
        row = {"name": library.modules[0], "impl": library.impl}
        if (row["name"], row["impl"]) in self.there:  # it may have ended the last worker
            self.has[library] = False
            return False
        self.reporter.say(begin=row)
        try:
            library.load()
            self.has[library] = True
            self.reporter.say(imported=library.impl)
        except Exception as error:  # a library built for another PyTorch raises anything
            self.has[library] = False
            self.reporter.say(row={**row, "error": f"cannot be imported: {summary(error)}"})
        return self.has[library]

    def measure(self, case):
        """Measures one row. Returns whether the GPU is fit for more."""
        row = case.fields()
        self.reporter.say(begin=row)
        # Compiled for this case's sizes, whatever was compiled before.
        torch.compiler.reset()
        try:
            times = self.clock.measure(case.prepare())
            self.reporter.say(row={**row, **result(times, case.gflop, case.gbytes)})
            failed = bool(times.graph_error)
        except Exception as error:  # whatever a library says that it cannot
            self.reporter.say(row={**row, "error": summary(error)})
            failed = True
        return not failed or not gpu_is_lost(self.device)


def work(args):
    """The worker: measures what is not there yet. Returns its exit code."""
    require_gpu(args.device)
    set_up_pytorch()
    reporter = Reporter(args.worker)
    there, dropped = reporter.done_before(machine(args.device))
    measurer = Measurer(args, reporter, there)
    for case in chosen_cases(args):
        if (case.name, case.impl) in there or case.impl in dropped:
            continue
        if case.library and not measurer.check(case.library):
            continue
        if not measurer.measure(case):
            return ANOTHER
        if args.device == "cuda":
            torch.cuda.empty_cache()
    reporter.say(end=True)
    return 0


# ---- The program ----

def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--filter", default="", metavar="REGEX", help="of the cases' names")
    parser.add_argument("--dtypes", default="bf16,fp32", help=f"of {', '.join(DTYPES)}")
    parser.add_argument("--min-time", type=float, default=0.3, metavar="SECONDS")
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE")
    parser.add_argument("--resume", action="store_true", help="go on with FILE if it was cut")
    parser.add_argument("--list", action="store_true", help="print the cases and end")
    parser.add_argument("--row-time", type=float, default=150, metavar="SECONDS",
                        help="after which a row counts as hung")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--tiny", action="store_true", help="small shapes under the same names")
    parser.add_argument("--worker", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if unknown := set(args.dtypes.split(",")) - set(DTYPES):
        sys.exit(usage_error(f"--dtypes: {', '.join(sorted(unknown))}: expected some of "
                             f"{', '.join(DTYPES)}"))
    return args


def main():
    args = parse_arguments()
    if args.worker is not None:
        sys.exit(work(args))
    cases = chosen_cases(args)
    if args.list:
        for case in cases:
            print(f"{case.name}  {case.impl}")
        return
    options = {name: getattr(args, name) for name in ("device", "tiny", "min_time")}
    rows = RowsFile(args.json, "peer_kernels", options, key=("name", "impl"))
    code = supervise(sys.argv, rows, args.resume, args.row_time)
    measured = sum("time_us" in row for row in rows.rows)
    print(f"{len(cases)} cases chosen; {measured} rows measured, {len(rows.rows) - measured} say "
          "why not")
    if code == 0 and measured == 0:
        print("error: no rival could be measured", file=sys.stderr)
        code = 1
    sys.exit(code)


if __name__ == "__main__":
    main()
