"""Residual network layers of other libraries: convolutions, pooling, batch norm; channels_last."""

import torch
import torch.nn.functional as F

LABEL, IMAGES = "16384", 16
# A layer: name, edge of the image, channels in and out, edge of the kernel, stride.
LAYERS = (("stem", 224, 3, 64, 7, 2), ("3x3/56", 56, 64, 64, 3, 1), ("1x1/56", 56, 64, 256, 1, 1),
          ("3x3/28/2", 56, 128, 128, 3, 2), ("3x3/7", 7, 512, 512, 3, 1))


def images(cases, n, channels, edge):
    return cases.randn(n, channels, edge, edge).contiguous(memory_format=torch.channels_last)


def add_layer(cases, name, edge, inner, outer, kernel, stride):
    """PyTorch convolutions, which use cuDNN on a GPU: forward, and each gradient alone. Its weight
    gradient has the operands' dtype, Shale's f32."""
    n = 1 if cases.tiny else IMAGES
    edge = max(edge // 8, kernel) if cases.tiny else edge
    padding = kernel // 2
    out_edge = (edge + 2 * padding - kernel) // stride + 1
    weight = outer * inner * kernel * kernel
    x_count, y_count = n * inner * edge * edge, n * outer * out_edge * out_edge
    # Counts the multiplications of all windows, including those in the padding.
    gflop = 2e-9 * n * out_edge * out_edge * weight
    tensor_bytes = (x_count + y_count + weight) * cases.size
    impl = f"PyTorch ({cases.convolutions})"

    def operands():
        w = cases.randn(outer, inner, kernel, kernel).contiguous(memory_format=torch.channels_last)
        return images(cases, n, inner, edge), w, images(cases, n, outer, out_edge)

    def forward():
        x, w, _ = operands()

        def fn():
            with torch.no_grad():
                F.conv2d(x, w, stride=stride, padding=padding)

        return tensor_bytes, fn

    def gradient(of):
        def make():
            x, w, dy = operands()
            wanted = [of == "input", of == "weight", False]

            def fn():
                torch.ops.aten.convolution_backward(
                    dy, x, w, None, [stride] * 2, [padding] * 2, [1, 1], False, [0, 0], 1, wanted)

            return tensor_bytes, fn

        return make

    cost = (gflop, tensor_bytes * 1e-9)
    for slot, make in (("conv", forward), ("conv_input_grad", gradient("input")),
                       ("conv_weight_grad", gradient("weight"))):
        cases.add(f"{slot}/{name}/{LABEL}", impl, cost, lambda make=make: make)


def add_pooling(cases):
    n, edge = (1, 14) if cases.tiny else (IMAGES, 112)
    x_count, y_count = n * 64 * edge * edge, n * 64 * edge * edge // 4

    def pool(x):
        return F.max_pool2d(x, 3, 2, 1)

    def make():
        x = images(cases, n, 64, edge)

        def fn():
            with torch.no_grad():
                pool(x)

        return (x_count + y_count) * cases.size, fn

    def make_gradient():
        x = images(cases, n, 64, edge).requires_grad_()
        y = pool(x)
        dy = torch.randn_like(y)
        return (2 * x_count + y_count) * cases.size, lambda: torch.autograd.grad(
            y, x, dy, retain_graph=True)

    # The cost is that of Shale's kernel, which stores indices in bytes.
    cost = (0, ((x_count + y_count) * cases.size + y_count) * 1e-9)
    cases.add(f"max_pool/stem/{LABEL}", "PyTorch eager", cost, lambda: make)
    cases.add(f"max_pool_grad/stem/{LABEL}", "PyTorch eager", cost, lambda: make_gradient)


def add_batch_norm(cases):
    """Normalises by given moments, with the residual and the ReLU that Shale's kernel fuses."""
    n, edge = (1, 7) if cases.tiny else (IMAGES, 56)
    tensor_bytes = 3 * n * 64 * edge * edge * cases.size

    def norm(x, residual, mean, variance, gain, bias):
        return F.relu(F.batch_norm(x, mean, variance, gain, bias) + residual)

    def maker(function):
        def make():
            x, residual = (images(cases, n, 64, edge) for _ in range(2))
            gain, bias, mean = (cases.randn(64, dtype=torch.float32) for _ in range(3))
            variance = torch.ones_like(mean)

            def fn():
                with torch.no_grad():
                    function(x, residual, mean, variance, gain, bias)

            return tensor_bytes, fn

        return make

    for impl, compiler in cases.compilers():
        cases.add(f"batch_norm/relu/{LABEL}", impl, (0, tensor_bytes * 1e-9),
                  lambda compiler=compiler: maker(compiler(norm)))


def add_all(cases):
    for layer in LAYERS:
        add_layer(cases, *layer)
    add_pooling(cases)
    add_batch_norm(cases)
