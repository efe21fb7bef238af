"""Times work as bench_kernels does: device events around batches, operands that take turns, medians."""

import itertools
import json
import math
import statistics
import sys
import time

import torch


class Clock:
    """Of one device. On a GPU: events on the current stream, over batches of at least two
    milliseconds, so that neither their resolution nor the host's time to launch counts."""

    def __init__(self, device, min_time_s):
        self.device = torch.device(device)
        self.min_time_s = min_time_s
        self.on_gpu = self.device.type == "cuda"

    def rotation_bytes(self):
        """Operands take turns until so many bytes have gone by: four times the cache."""
        if not self.on_gpu:
            return 1  # for a try of the script
        cache = torch.cuda.get_device_properties(self.device).L2_cache_size
        return min(max(4 * cache, 128 << 20), 1 << 30)

    def seconds_per_call(self, calls, fn):
        if not self.on_gpu:
            start = time.perf_counter()
            for _ in range(calls):
                fn()
            return (time.perf_counter() - start) / calls
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for _ in range(calls):
            fn()
        end.record()
        end.synchronize()
        return start.elapsed_time(end) * 1e-3 / calls

    def measure(self, make):
        """make() gives operands and a function of them: (bytes, fn). Returns seconds, sorted."""
        bytes_of_one, first = make()
        copies = min(max(self.rotation_bytes() // max(bytes_of_one, 1), 1), 64)
        turns = itertools.cycle([first] + [make()[1] for _ in range(copies - 1)])

        def fn():
            next(turns)()

        for _ in range(max(3, copies)):  # every copy is compiled, allocated and touched
            warm = self.seconds_per_call(1, fn)
        calls = 1
        if self.on_gpu:
            calls = min(max(math.ceil(2e-3 / max(warm, 1e-9)), 1), 1000)
        samples, begin = [], time.perf_counter()
        while len(samples) < 3 or time.perf_counter() - begin < self.min_time_s:
            samples.append(self.seconds_per_call(calls, fn))
        return sorted(samples)


def row(name, impl, dtype, seconds, gflop, gbytes):
    """A row as those of bench_kernels --json, with `impl` for what was measured."""
    median = statistics.median(seconds)
    compute = gflop > 0
    return {"name": name, "impl": impl, "dtype": dtype, "runs": len(seconds),
            "time_us": median * 1e6, "time_us_min": seconds[0] * 1e6, "gflop": gflop,
            "gbytes": gbytes, "speed": (gflop if compute else gbytes) / median / 1e3,
            "unit": "TFLOP/s" if compute else "TB/s"}


def machine(device):
    facts = {"torch": torch.__version__, "cuda": torch.version.cuda or "none",
             "python": sys.version.split()[0]}
    if torch.device(device).type == "cuda":
        facts["gpu"] = torch.cuda.get_device_name(device)
        facts["cudnn"] = str(torch.backends.cudnn.version())
    return facts


def require_gpu(device):
    """Ends the program with the exit code that Shale's programs have for a missing device."""
    if torch.device(device).type == "cuda" and not torch.cuda.is_available():
        print("error: PyTorch finds no GPU", file=sys.stderr)
        sys.exit(69)


def write(path, program, device, rows):
    if path:
        document = {"program": program, "machine": machine(device), "rows": rows}
        path.write_text(json.dumps(document, indent=1) + "\n")
