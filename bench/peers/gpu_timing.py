"""Times work as bench_kernels does: device events around batches, rotating operands, medians."""

import contextlib
import dataclasses
import itertools
import math
import statistics
import sys
import time

import torch

BATCH_S = 2e-3
MAX_CALLS = 1000


@dataclasses.dataclass
class Times:
    """Result of one measurement."""

    seconds: list  # seconds of each call, sorted
    launch: str = "stream"  # "graph": calls were captured as a CUDA graph and replayed
    host_bound: bool = False  # launching a call from Python took about as long as running it
    graph_error: str = ""  # why calls with a slow launch could not be captured


class Clock:
    """Clock of one device. On a GPU: events on a stream, over batches of at least two milliseconds,
    so that the events' resolution does not matter. If Python cannot launch as fast as the GPU runs,
    calls are also captured into a CUDA graph and replayed, and the shorter time counts, as kernels
    are compared."""

    def __init__(self, device, min_time_s):
        self.device = torch.device(device)
        self.min_time_s = min_time_s
        self.on_gpu = self.device.type == "cuda"
        self.stream = torch.cuda.Stream(self.device) if self.on_gpu else None

    def rotation_bytes(self):
        """Returns the bytes of operands to use in turn: four times the cache."""
        if not self.on_gpu:
            return 1  # a CPU is used only to try this script out
        cache = torch.cuda.get_device_properties(self.device).L2_cache_size
        return min(max(4 * cache, 128 << 20), 1 << 30)

    def seconds_per_call(self, calls, fn):
        """Returns (seconds per call, seconds to launch one)."""
        start = time.perf_counter()
        if not self.on_gpu:
            for _ in range(calls):
                fn()
            return (time.perf_counter() - start) / calls, 0
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for _ in range(calls):
            fn()
        end.record()
        launched = time.perf_counter() - start
        end.synchronize()
        return begin.elapsed_time(end) * 1e-3 / calls, launched / calls

    def samples(self, calls, fn):
        """Returns pairs of seconds_per_call() until min_time_s has passed."""
        taken, start = [], time.perf_counter()
        while len(taken) < 3 or time.perf_counter() - start < self.min_time_s:
            taken.append(self.seconds_per_call(calls, fn))
        return taken

    def measure(self, make):
        """make() returns operands and a function that uses them: (bytes, fn). Returns Times."""
        with torch.cuda.stream(self.stream) if self.on_gpu else contextlib.nullcontext():
            return self.measure_here(make)

    def measure_here(self, make):
        bytes_of_one, first = make()
        copies = min(max(self.rotation_bytes() // max(bytes_of_one, 1), 1), 64)
        turns = itertools.cycle([first] + [make()[1] for _ in range(copies - 1)])

        def fn():
            next(turns)()

        for _ in range(max(3, copies)):  # the first calls compile, allocate and touch every copy
            warm, _ = self.seconds_per_call(1, fn)
        calls = 1
        if self.on_gpu:
            calls = min(max(math.ceil(BATCH_S / max(warm, 1e-9)), 1), MAX_CALLS)
        taken = self.samples(calls, fn)
        times = Times(sorted(seconds for seconds, _ in taken))
        launch = statistics.median(launched for _, launched in taken)
        times.host_bound = launch > 0.9 * statistics.median(times.seconds)
        if times.host_bound:
            self.replay(fn, copies, times)
        return times

    def replay(self, fn, copies, times):
        """Measures a graph of all copies' calls; updates `times` if it is faster."""
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph, stream=self.stream):
                for _ in range(copies):
                    fn()
            once = self.seconds_per_call(1, graph.replay)[0]
            replays = min(max(math.ceil(BATCH_S / max(once, 1e-9)), 1), MAX_CALLS)
            taken = self.samples(replays, graph.replay)
        except Exception as error:  # some calls cannot be captured, and raise any exception
            times.graph_error = summary(error)
            return
        seconds = sorted(per_graph / copies for per_graph, _ in taken)
        if statistics.median(seconds) < statistics.median(times.seconds):
            times.seconds, times.launch = seconds, "graph"


def summary(error):
    """Returns one line about an exception."""
    return " ".join(f"{type(error).__name__}: {error}".split())[:300]


def result(times, gflop, gbytes):
    """Returns a measurement's fields of a bench_kernels --json row."""
    median = statistics.median(times.seconds)
    compute = gflop > 0
    row = {"runs": len(times.seconds), "time_us": median * 1e6,
           "time_us_min": times.seconds[0] * 1e6, "gflop": gflop, "gbytes": gbytes,
           "speed": (gflop if compute else gbytes) / median / 1e3,
           "unit": "TFLOP/s" if compute else "TB/s", "launch": times.launch}
    if times.host_bound:
        row["host_bound"] = True
    if times.graph_error:
        row["graph_error"] = times.graph_error
    return row


def machine(device):
    facts = {"torch": torch.__version__, "cuda": torch.version.cuda or "none",
             "python": sys.version.split()[0]}
    if torch.device(device).type == "cuda":
        facts["gpu"] = torch.cuda.get_device_name(device)
        facts["cudnn"] = str(torch.backends.cudnn.version())
    return facts


def require_gpu(device):
    """Ends the program with Shale's exit code for a missing device."""
    if torch.device(device).type == "cuda" and not torch.cuda.is_available():
        print("error: PyTorch finds no GPU", file=sys.stderr)
        sys.exit(69)
