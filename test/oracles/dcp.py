"""Reads checkpoints that Shale has exported with PyTorch, and the other way round.

For a GPT-2 with tied weights and a Llama, the fixtures from llm.c: `shale ckpt export --to dcp` is
loaded by torch.distributed.checkpoint into the state_dict() of transformers' model, and compared with
the export to safetensors. Then PyTorch writes the weights as pytorch_model.bin and with dcp.save(),
and `train_lm --init` exports what it has read. Prints the number of tensors that have the same bits in
each direction, and checksums of the files that torch has read, which test/cli/ckpt.sh compares.
"""

import hashlib
import pathlib
import shutil
import subprocess
import sys
import tempfile

import torch
import torch.distributed.checkpoint as dcp
from safetensors.torch import load_file
from transformers import AutoConfig, AutoModelForCausalLM

TESTS = pathlib.Path(__file__).resolve().parents[1]
PROGRAMS = next(p for p in (TESTS.parent / "build" / preset / "bin" for preset in ("release", "dev"))
                if (p / "train_lm").exists())
RUN = ["--seq-len", "8", "--micro-batch", "1", "--threads", "1", "--device", "cpu"]


def run(program, *args):
    subprocess.run([PROGRAMS / program, *map(str, args)], check=True, stdout=subprocess.DEVNULL)


def same(found, expected):
    wrong = [name for name in expected if not torch.equal(found[name], expected[name])]
    if wrong:
        sys.exit(f"differ: {wrong}")
    return len(expected)


def check(name, init, work):
    data = work / "data"
    data.mkdir()
    for split, tokens in (("train", 4000), ("val", 400)):
        (data / f"{split}.bin").write_bytes(bytes(byte for i in range(tokens) for byte in (i % 16, 0)))
    out, hf, to = work / "out", work / "hf", work / "dcp"
    # A training step with a learning rate of 0 leaves the weights unchanged.
    run("train_lm", "--data", data, "--init", init, "--steps", 1, "--lr", 0, "--save-every", 1, "--out", out, *RUN)
    run("shale", "ckpt", "export", out, "--out", hf)
    run("shale", "ckpt", "export", out, "--out", to, "--to", "dcp")
    expected = load_file(hf / "model.safetensors")

    state = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(to)).state_dict()
    dcp.load(state, checkpoint_id=to)
    print(f"{name}_dcp_read_by_torch {same(state, expected)}")
    for file in (".metadata", "__0_0.distcp"):
        print(f"{name}_{file} {hashlib.sha256((to / file).read_bytes()).hexdigest()[:16]}")

    bin_folder, dcp_folder = work / "bin", work / "of_torch"
    for folder in (bin_folder, dcp_folder):
        folder.mkdir()
        shutil.copy(hf / "config.json", folder)
    torch.save(expected, bin_folder / "pytorch_model.bin")
    dcp.save({"model": expected}, checkpoint_id=dcp_folder)
    for folder in (bin_folder, dcp_folder):
        again = work / f"again_{folder.name}"
        run("train_lm", "--data", data, "--init", folder, "--steps", 0, "--out", work / f"run_{folder.name}",
            "--export", again, *RUN)
        print(f"{name}_{folder.name}_read_by_shale {same(load_file(again / 'model.safetensors'), expected)}")


for name in ("llmc", "llmc_llama"):
    with tempfile.TemporaryDirectory() as folder:
        check(name, TESTS / "fixtures" / "checkpoints" / f"{name}_fp32.bin", pathlib.Path(folder))
