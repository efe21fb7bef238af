"""Runs in onnxruntime what Shale has exported to ONNX, and compares with Shale's own outputs.

The tests of the export (test_runtime and test_models with the variable SHALE_ONNX_OUT) write each
file with its inputs and outputs, for two batch sizes where the batch is free. The checker of the
package onnx checks each file with shape inference. Then train_image and train_diffusion each train
two steps, and `shale ckpt export --to onnx` must write the weights that --export writes; and a module
of a Python program is exported. Prints for each file the number of its nodes, and 1 if all outputs
agree to 1e-5, relative to values above 1; and for each run the number of equal weights.
"""

import os
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
import onnx
import onnxruntime
from safetensors.numpy import load_file

TESTS = pathlib.Path(__file__).resolve().parents[1]
BUILD = next(p for p in (TESTS.parent / "build" / preset for preset in ("release", "dev"))
             if (p / "test" / "test_models").exists())
sys.path.insert(0, str(TESTS.parent / "bindings" / "python"))
os.environ["SHALE_LIBRARY"] = str(BUILD / "lib" / "libshale_c.so.1")
DTYPES = {"fp32": "float32", "int32": "int32", "uint8": "uint8"}


def run(program, *args, **variables):
    return subprocess.run([BUILD / program, *map(str, args)], check=True, capture_output=True, text=True,
                          env=os.environ | variables).stdout


def session(path):
    onnx.checker.check_model(str(path), full_check=True)
    return onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])


def error(found, expected):
    if found.shape != expected.shape or found.dtype != expected.dtype:
        sys.exit(f"found {found.dtype}{found.shape}, expected {expected.dtype}{expected.shape}")
    difference = np.abs(found.astype("float64") - expected.astype("float64"))
    return (difference / np.maximum(1, np.abs(expected))).max()


def check_case(listing):
    values = {"input": [], "output": []}
    lines = [line.split() for line in listing.read_text().splitlines()]
    for role, _, file, dtype, *shape in lines[1:]:
        data = np.fromfile(listing.parent / file, DTYPES[dtype])
        values[role].append(data.reshape([int(size) for size in shape]))
    model = session(listing.parent / lines[0][1])
    given = dict(zip([x.name for x in model.get_inputs()], values["input"]))
    found = model.run(None, given)
    return max(error(a, b) for a, b in zip(found, values["output"], strict=True))


def report(name, path, errors):
    print(f"{name}_nodes {len(onnx.load(str(path), load_external_data=False).graph.node)}")
    print(f"{name}_within_1e-5 {int(max(errors) < 1e-5)}")
    print(f"  {name}: {max(errors):.1e}", file=sys.stderr)


def check_tests(work):
    for program, tag in (("test_runtime", "[#onnx]"), ("test_models", "[#export_onnx]")):
        run(f"test/{program}", "--filenames-as-tags", tag, SHALE_ONNX_OUT=str(work))
    for path in sorted(work.glob("*.onnx")):
        listings = [p for p in (path.with_suffix(".txt"), path.with_suffix(".more.txt")) if p.exists()]
        report(path.stem, path, [check_case(p) for p in listings])


def check_runs(work):
    """Compares the weights of exported runs with those that the programs themselves write."""
    common = ["--threads", 1, "--device", "cpu", "--steps", 2, "--save-every", 2, "--data", "shapes",
              "--made-images", 64, "--pixels", 16, "--global-batch", 8]
    for program, model in (("train_image", "resnet18-small"), ("train_image", "vit-nano"),
                           ("train_diffusion", "dit-nano")):
        out, path, exported = (work / f"{model}{ending}" for ending in ("_run", ".run.onnx", "_export"))
        run(f"bin/{program}", *common, "--model", model, "--out", out, "--export", exported)
        run("bin/shale", "ckpt", "export", out, "--to", "onnx", "--out", path)
        session(path)
        found = {x.name: onnx.numpy_helper.to_array(x) for x in onnx.load(str(path)).graph.initializer}
        expected = load_file(exported / "model.safetensors")
        names = [name for name in expected if not name.endswith(("pos_embed", "num_batches_tracked"))]
        print(f"{model}_weights {sum(np.array_equal(found[x], expected[x]) for x in names)}")


def check_python():
    """A module of a Python program."""
    import shale

    class Block(shale.Module):
        def __init__(self):
            super().__init__()
            self.norm = shale.LayerNorm(self, "norm", 8)
            self.up = shale.Linear(self, "up", 8, 32, std=1)
            self.down = shale.Linear(self, "down", 32, 8, std=1)

        def forward(self, x):
            return self.down(shale.gelu(self.up(self.norm(x))), x)

    with shale.init("cpu"), tempfile.TemporaryDirectory() as folder:
        block, path = Block().shard(seed=1), pathlib.Path(folder) / "block.onnx"
        x = np.random.default_rng(1).standard_normal((3, 5, 8), dtype="float32")
        block.export_onnx(path, shale.tensor(x[:2]))
        expected = np.asarray(block(shale.tensor(x)).detach())
        report("python", path, [error(session(path).run(None, {"input": x})[0], expected)])


with tempfile.TemporaryDirectory() as folder:
    check_tests(pathlib.Path(folder))
    check_runs(pathlib.Path(folder))
check_python()
