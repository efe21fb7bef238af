"""Runs in onnxruntime what Shale has exported to ONNX, and compares with Shale's own outputs.

The tests of the export (test_runtime and test_models with the variable SHALE_ONNX_OUT) write each
file with its inputs and outputs, for two batch sizes where the batch is free. The checker of the
package onnx checks each file with shape inference. Then train_image and train_diffusion each train
a few steps, `shale ckpt export --to onnx` writes their models, and `shale classify` gives the
probabilities to compare with. Prints for each file the number of its nodes, and 1 if all outputs
agree to 1e-5, relative to values above 1.
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
import onnx
import onnxruntime

TESTS = pathlib.Path(__file__).resolve().parents[1]
BUILD = next(p for p in (TESTS.parent / "build" / preset for preset in ("release", "dev"))
             if (p / "test" / "test_models").exists())
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
    for program in ("test_runtime", "test_models"):
        run(f"test/{program}", "--filenames-as-tags", "[#onnx],[#export_onnx]", SHALE_ONNX_OUT=str(work))
    for path in sorted(work.glob("*.onnx")):
        listings = [p for p in (path.with_suffix(".txt"), path.with_suffix(".more.txt")) if p.exists()]
        report(path.stem, path, [check_case(p) for p in listings])


def check_runs(work):
    common = ["--threads", 1, "--device", "cpu", "--steps", 4, "--save-every", 4, "--data", "shapes",
              "--made-images", 64]
    run("bin/train_image", *common, "--pixels", 16, "--model", "resnet18-small", "--out", work / "image",
        "--global-batch", 8)
    path = work / "image.onnx"
    run("bin/shale", "ckpt", "export", work / "image", "--to", "onnx", "--out", path)
    pictures = sorted((TESTS / "fixtures" / "images").glob("*.png"))[:2]
    classified = [json.loads(line) for line in
                  run("bin/shale", "classify", work / "image", *pictures, "--json").splitlines()]
    print(f"classified {len(classified)}")


with tempfile.TemporaryDirectory() as folder:
    check_tests(pathlib.Path(folder))
