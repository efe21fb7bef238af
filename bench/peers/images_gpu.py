#!/usr/bin/env python3
"""PyTorch's speed of an image classifier's training step on one GPU, for comparison with Shale's.

    python3 images_gpu.py [--model resnet50] [--pixels 224] [--micro-batch 128]
                          [--modes eager,compile] [--json FILE [--resume]]

Requires only PyTorch: the script contains the models, ResNet-50 version 1.5 (the stride is in a
block's 3 x 3) and ViT-B/16 as published (class token, learned positions, pre-norm, GELU in its erf
form), both with 1000 classes. Convolutions are cuDNN's, channels_last, with
torch.backends.cudnn.benchmark, which tries its algorithms; attention is
scaled_dot_product_attention. gpu_steps.py describes steps and rows. The mode is eager, the model as
written, or compile, torch.compile of the model. Rows also have pixels and

  images_per_s    from the median

--device cpu --small tries the script without a GPU.
"""

import argparse

import torch
import torch.nn.functional as F
from gpu_steps import Script, Work, add_arguments, check, run
from torch import nn
from transformer_block import Block

MODES = ("eager", "compile")
CLASSES = 1000


class Bottleneck(nn.Module):
    """1 x 1, 3 x 3 and 1 x 1 convolutions with a shortcut, each followed by batch norm."""

    def __init__(self, channels, width, stride):
        super().__init__()
        out = 4 * width
        self.path = nn.Sequential(
            nn.Conv2d(channels, width, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(True),
            nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width),
            nn.ReLU(True), nn.Conv2d(width, out, 1, bias=False), nn.BatchNorm2d(out))
        self.around = nn.Identity() if (channels, stride) == (out, 1) else nn.Sequential(
            nn.Conv2d(channels, out, 1, stride, bias=False), nn.BatchNorm2d(out))

    def forward(self, x):
        return F.relu(self.path(x) + self.around(x))


def resnet(stages):
    """stages: (blocks, width) per stage."""
    layers = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(True),
              nn.MaxPool2d(3, 2, 1)]
    channels = 64
    for i, (blocks, width) in enumerate(stages):
        for j in range(blocks):
            layers.append(Bottleneck(channels, width, 2 if i > 0 and j == 0 else 1))
            channels = 4 * width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(),
                         nn.Linear(channels, CLASSES))


class VisionTransformer(nn.Module):
    def __init__(self, pixels, layers, width, heads, patch=16):
        super().__init__()
        self.patches = nn.Conv2d(3, width, patch, patch)
        self.token = nn.Parameter(torch.zeros(1, 1, width))
        self.positions = nn.Parameter(
            nn.init.normal_(torch.empty(1, (pixels // patch) ** 2 + 1, width), std=0.02))
        self.blocks = nn.Sequential(
            *(Block(width, heads, causal=False, gelu="none") for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, CLASSES)

    def forward(self, images):
        x = self.patches(images).flatten(2).transpose(1, 2)
        x = torch.cat((self.token.expand(len(x), -1, -1), x), 1) + self.positions
        return self.head(self.norm(self.blocks(x))[:, 0])


def make_model(name, pixels, small):
    if name == "resnet50":
        return resnet([(1, 8), (1, 16)] if small else [(3, 64), (4, 128), (6, 256), (3, 512)])
    return VisionTransformer(pixels, *((1, 32, 2) if small else (12, 768, 12)))


def fields(args):
    return {"model": "" if args.small else args.model, "pixels": args.pixels}


def make_work(args, mode):
    torch.backends.cudnn.benchmark = True
    model = make_model(args.model, args.pixels, args.small).to(args.device)
    model = model.to(memory_format=torch.channels_last)
    images = torch.rand(args.micro_batch, 3, args.pixels, args.pixels, device=args.device) - 0.5
    images = images.contiguous(memory_format=torch.channels_last)
    labels = torch.randint(0, CLASSES, (args.micro_batch,), device=args.device)
    forward = model if mode == "eager" else torch.compile(model)
    return Work(model, lambda: F.cross_entropy(forward(images).float(), labels),
                lambda median_ms, _: {
                    "images_per_s": round(args.global_batch / median_ms * 1e3, 1)})


SCRIPT = Script("peer_images", MODES, fields, make_work)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", choices=("resnet50", "vit-b16"), default="resnet50")
    parser.add_argument("--pixels", type=int, default=224)
    parser.add_argument("--small", action="store_true", help="a few narrow layers")
    add_arguments(parser, SCRIPT, micro_batch=128, global_batch_of="images")
    args = parser.parse_args()
    check(args, SCRIPT)
    run(args, SCRIPT)


if __name__ == "__main__":
    main()
