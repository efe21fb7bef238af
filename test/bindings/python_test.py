"""Tests the Python module with the standard library alone; tensor_test.py has its tensors. Tests that
need numpy are skipped if it is missing.

Run: python_test.py, or mpirun -np 2 python3 python_test.py ranks FOLDER
"""

import ctypes
import gc
import math
import pathlib
import sys
import tempfile
import unittest
import zlib

import shale
from shale import functions as F


class Errors(unittest.TestCase):
    def test_they_are_exceptions_with_words(self):
        with self.assertRaisesRegex(shale.ArgumentError, "expected") as caught:
            shale.zeros((2, 3)) @ shale.zeros((2, 3))
        self.assertEqual(caught.exception.status, 1)
        self.assertIsInstance(caught.exception, ValueError)
        with self.assertRaises(shale.StateError):
            shale.init()
        with self.assertRaises(shale.ConfigError):
            shale.LanguageModel("nanoo")
        with self.assertRaises(TypeError):
            shale.LanguageModel("nano", depth=3)
        with self.assertRaises(FileNotFoundError):
            shale.checkpoint_state("/there/is/none")

    def test_wrong_types_are_named_by_functions(self):
        x = shale.tensor([1.0, 2.0])
        model = shale.LanguageModel("nano", context=8, layers=1)
        for call, text in ((lambda: x * [1, 2], "mul: found list, expected a number or a shale.T"),
                           (lambda: "a" + x, "add: found str"),
                           (lambda: 1 - x.tolist() * x, "mul: found list"),
                           (lambda: shale.exp(2.0), "exp: found float, expected a shale.Tensor"),
                           (lambda: shale.mse_loss(x, [1, 2]), "mse_loss: found list"),
                           (lambda: shale.concat([x, [1.0]]), "concat: found list"),
                           (lambda: shale.softmax(x, 1.5), "softmax: found float, expected a who"),
                           (lambda: x.copy_([1, 2]), "copy_: found list"),
                           (lambda: model.loss([[1]], x), "loss: found list, .* shale.as_tensor"),
                           (lambda: model.mean_over_ranks("x"), "mean_over_ranks: found str"),
                           (lambda: Mlp()([1, 2]), "Mlp: found no shale.Tensor"),
                           (lambda: shale.Linear("x", "y", 2, 2), "Linear: found str, .* shale.Mo"),
                           (lambda: shale.Optimizer(2.0), "Optimizer: found float")):
            with self.assertRaisesRegex(TypeError, "^" + text):
                call()

    def test_new_tensors_are_made_on_the_device(self):
        self.assertEqual(shale.arange(3).tolist(), [0, 1, 2])
        self.assertEqual(shale.arange(1, 2, 0.5, "float32").tolist(), [1, 1.5])
        self.assertEqual(shale.linspace(0, 1, 3, "float64").tolist(), [0, 0.5, 1])
        a, b = shale.randn((100,)), shale.randn((100,))
        self.assertNotEqual(a.tolist(), b.tolist())
        self.assertLess(abs(a.mean().item()), 1)
        self.assertEqual(shale.randn((4,), seed=3).tolist(), shale.randn((4,), seed=3).tolist())
        even = shale.uniform((100,), -2, -1, seed=2**63).tolist()
        self.assertTrue(all(-2 <= x < -1 for x in even))
        self.assertEqual(shale.randn((2, 2), "bfloat16").dtype, "bfloat16")
        with self.assertRaisesRegex(shale.ArgumentError, "randn|random_normal"):
            shale.randn((2,), "int32")

    def test_assignment_to_a_slice_has_gradients(self):
        x = shale.tensor([1.0, 2.0], requires_grad=True)
        y = shale.zeros((2, 3))
        y[:, 1] = x
        y[0, 2:3] = 5
        row = y[0]
        (row * row).sum().backward()
        self.assertEqual(y.tolist(), [[0, 1, 5], [0, 2, 0]])
        self.assertEqual(x.grad.tolist(), [2, 0])
        with self.assertRaisesRegex(shale.ArgumentError, "leaf"):
            x[0] = 3
        with shale.inference():
            x[0] = 3
        self.assertEqual(x.tolist(), [3, 2])
        with self.assertRaisesRegex(shale.ArgumentError, r"expected the shape \[2\]"):
            y[:, 1] = shale.zeros((3,))
        with self.assertRaisesRegex(shale.ArgumentError, "expected fp32"):
            y[:, 1] = shale.zeros((2,), "float64")

    def test_scatter_cumsum_and_vectors(self):
        x = shale.tensor([1.0, 2.0, 3.0], requires_grad=True)
        index = shale.tensor([2, 0], "int32")
        self.assertEqual(shale.cumsum(x, 0).tolist(), [1, 3, 6])
        self.assertEqual(shale.scatter(x, 0, index, shale.tensor([7.0, 8.0])).tolist(), [8, 2, 7])
        self.assertEqual(shale.scatter_add(x, 0, index, shale.tensor([7.0, 8.0])).tolist(),
                         [9, 2, 10])
        loss = x @ x + x.cumsum(0).sum()
        loss.backward(retain_graph=True)
        self.assertEqual(x.grad.tolist(), [5, 6, 7])
        loss.backward()
        self.assertEqual(x.grad.tolist(), [10, 12, 14])
        with self.assertRaisesRegex(shale.ArgumentError, "earlier backward"):
            loss.backward()

    def test_casts_of_all_dtypes(self):
        for one in ("float32", "bfloat16", "float16", "float64", "int32", "int64", "uint8"):
            for other in ("float64", "int64", "uint32", "uint16", "bfloat16"):
                self.assertEqual(shale.arange(9, dtype=one).cast(other).cast("int64").tolist(),
                                 list(range(9)))
        self.assertEqual(shale.tensor([300, -1]).to("uint8").tolist(), [44, 255])

    def test_to_the_host_and_back(self):
        x = shale.tensor([1.0, 2.0], requires_grad=True)
        y = (x * 2).to("cpu") * x.to("cpu")
        self.assertEqual(y.device, "cpu")
        y.to(shale.runtime().device).sum().backward()
        self.assertEqual(x.grad.tolist(), [4, 8])

    def test_functions_are_named_as_in_python(self):
        x = shale.zeros((3,))
        for call, text in ((lambda: x + shale.zeros((2,)), "add: "), (lambda: x.sum(5), "sum: "),
                           (lambda: shale.exp(shale.tensor([1])), "exp: "),
                           (lambda: x @ shale.zeros((2,)), "matmul: "),
                           (lambda: x.backward(), "backward: ")):
            with self.assertRaisesRegex(shale.ArgumentError, "^" + text):
                call()

    def test_exceptions_of_forward_come_back(self):
        class Broken(shale.Module):
            def forward(self, x):
                raise KeyError("mine")
        with self.assertRaisesRegex(KeyError, "mine"):
            Broken()(shale.zeros((1,)))

    def test_inputs_outlive_forward(self):
        class Keeps(shale.Module):
            def forward(self, x, factor):
                self.seen = x
                return x * factor
        model = Keeps()
        self.assertEqual(model(shale.tensor([2.0]), 3).tolist(), [6])
        self.assertEqual(model.seen.tolist(), [2])


class Numpy(unittest.TestCase):
    def setUp(self):
        try:
            import numpy
        except ImportError:
            self.skipTest("there is no numpy")
        self.numpy = numpy

    def test_arrays_share_memory(self):
        np = self.numpy
        values = np.arange(6, dtype=np.float32).reshape(2, 3)
        x = shale.as_tensor(values[:, ::2])
        values[0, 2] = 8
        self.assertEqual(x.tolist(), [[0, 8], [3, 5]])
        y = np.asarray(x * 1)
        self.assertEqual(y.tolist(), [[0, 8], [3, 5]])
        shown = shale.tensor([1.0, 2.0])
        z = np.asarray(shown)
        z[0] = 5
        self.assertEqual(shown.tolist(), [5, 2])
        del shown
        gc.collect()
        self.assertEqual(z.tolist(), [5, 2])
        self.assertEqual(shale.tensor(np.full(2, 3, np.float32)).tolist(), [3, 3])
        self.assertEqual(np.sqrt(shale.tensor([4.0])).tolist(), [2])
        frozen = np.ones(2, np.float32)
        frozen.flags.writeable = False
        self.assertTrue(shale.as_tensor(frozen)._info().read_only)

    def test_gradients_are_not_lost(self):
        np = self.numpy
        weight = shale.tensor([1.0, 4.0], requires_grad=True)
        for x in (weight, weight * 2):
            for call in (np.sqrt, np.asarray, np.array, lambda t: np.add(t, 1),
                         lambda t: np.concatenate([t, t]), lambda t: t.__dlpack__()):
                with self.assertRaisesRegex(shale.ArgumentError, "detach()"):
                    call(x)
        self.assertEqual(np.sqrt(weight.detach()).tolist(), [1, 2])
        with self.assertRaisesRegex(shale.ArgumentError, 'no bfloat16, expected x.cast'):
            np.asarray(shale.zeros((2,), "bfloat16"))

    def test_arrays_are_no_operands(self):
        np = self.numpy
        x, ones = shale.tensor([1.0, 2.0, 3.0]), np.ones(3)
        for call in (lambda: x * ones, lambda: ones * x, lambda: x == ones, lambda: ones == x,
                     lambda: ones - x, lambda: x < ones):
            with self.assertRaisesRegex(TypeError, "found numpy.ndarray, expected .*shale.tensor"):
                call()
        for factor in (np.float32(2), np.float64(2), np.int64(2)):
            self.assertEqual((x * factor).tolist(), [2, 4, 6])
            self.assertEqual((factor * x).tolist(), [2, 4, 6])

    def test_parameters_take_arrays(self):
        np = self.numpy
        model = Mlp()
        model.shard(seed=3)
        values = np.arange(32.0).reshape(16, 2)
        for given in (values, values.astype(np.float16), values.astype(np.float32)):
            model.write("first.weight", given * 2)
            self.assertEqual(model.read("first.weight").tolist(), (values * 2).tolist())
        with self.assertRaisesRegex(shale.ArgumentError, "shape is"):
            model.write("first.weight", values.T)
        with self.assertRaisesRegex(shale.ArgumentError, "int64, expected float32"):
            model.write("first.weight", values.astype(np.int64))


class OnnxTest(unittest.TestCase):
    def test_a_module_is_exported_for_any_batch_size(self):
        class Reading(Mlp):
            def forward(self, x):
                return super().forward(x) if self.read(x) > 0 else x

        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "mlp.onnx"
            model = Mlp().shard(seed=1)
            x = shale.tensor([[1.0, 2.0], [3.0, -4.0]])
            self.assertEqual(model.export_onnx(path, x), "")
            text = path.read_bytes()
            for name in (b"first.weight", b"second.bias", b"Gemm", b"Tanh", b"batch"):
                self.assertIn(name, text)
            self.assertEqual(model(x).shape, (2, 1))
            path.unlink()
            for read in (lambda x: x.sum().item(), lambda x: memoryview(x.tobytes())[0]):
                other = Reading().shard(seed=1)
                other.read = read
                with self.assertRaisesRegex(shale.ConfigError, "reads the values of"):
                    other.export_onnx(path, x)
            with self.assertRaisesRegex(shale.ConfigError, "first.weight has no memory"):
                Mlp().shard(3, seed=1).export_onnx(path, x)
            self.assertEqual(list(pathlib.Path(folder).iterdir()), [])


class Mlp(shale.Module):
    def __init__(self):
        super().__init__()
        self.first = shale.Linear(self, "first", 2, 16, std=1)
        self.second = shale.Linear(self, "second", 16, 1, std=0.2)

    def forward(self, x):
        return self.second(F.gelu(self.first(x)))


def train(steps, stage, folder=None, begin=0):
    """Losses of some steps."""
    runtime = shale.runtime()
    model = Mlp()
    model.first.shard(stage, seed=3)
    model.shard(stage, seed=3)
    optimizer = shale.Optimizer(model, "adamw", weight_decay=0)
    if begin:
        assert optimizer.load(folder) == begin
        assert shale.checkpoint_state(folder) == {"step": begin}
    losses = []
    for step in range(begin, steps):
        optimizer.prepare(step, 0.02)
        angles = [0.1 * (step * 64 + runtime.rank * 32 + i) for i in range(32)]
        radii = [1 - 0.5 * (i % 2) for i in range(32)]
        x = shale.tensor([[r * math.cos(a), r * math.sin(a)] for r, a in zip(radii, angles)])
        wanted = shale.tensor([[4 * r - 3] for r in radii])
        loss = shale.mse_loss(model(x), wanted)
        shale.backward(model.mean_over_ranks(loss, 32))
        model.clip_grad_norm(1)
        optimizer.step()
        model.zero_grad()
        losses.append(runtime.sum(loss.item()) / runtime.ranks)
        if folder and not begin and step + 1 == steps // 2:
            optimizer.save(folder, step + 1, {"step": step + 1})
    return losses, model


class Models(unittest.TestCase):
    def test_values_have_the_shape_of_what_they_set(self):
        model = Mlp()
        model.shard(seed=3)
        given = [[float(i), float(-i)] for i in range(16)]
        model.write("first.weight", given)
        self.assertEqual(model.read("first.weight").tolist(), given)
        model.write("first.weight", shale.tensor(given).cast("bfloat16"))
        self.assertEqual(model.read("first.weight").tolist(), given)
        turned = shale.tensor(given).transpose()
        for values in (turned, turned.tolist(), [1.0] * 32, memoryview(turned.tobytes())):
            with self.assertRaises(shale.ArgumentError):
                model.write("first.weight", values)
        with self.assertRaisesRegex(shale.ArgumentError, r"shape is \[2,16\], expected \[16,2\]"):
            model.write("first.weight", turned)
        with self.assertRaises(shale.ArgumentError):
            model.write("first.weight", shale.zeros((16, 2), "int32"))
        x = shale.zeros((2, 3))
        for values in ([1.0] * 6, shale.zeros((3, 2)), shale.zeros((2, 3), "int32")):
            with self.assertRaises(shale.ArgumentError):
                x.write(values)

    def test_a_model_needs_a_seed(self):
        with self.assertRaisesRegex(TypeError, "seed"):
            Mlp().shard(0)
        values = []
        for seed in (1, 2):
            model = Mlp()
            model.shard(seed=seed)
            values.append(model.read("first.weight").tolist())
        self.assertNotEqual(*values)

    def test_a_body_does_not_end_the_runtime(self):
        class Ends(shale.Module):
            def forward(self, x):
                shale.runtime().close()
        with self.assertRaisesRegex(shale.StateError, "inside the body"):
            Ends()(shale.zeros((1,)))
        self.assertEqual(shale.zeros((2,)).tolist(), [0, 0])

    def test_bf16_is_there_on_cpus(self):
        self.assertIs(shale.runtime().supports_bf16, True)


def masks(count=2, site=None, sample=None):
    """Returns the masks of `count` dropouts in one forward, which a backward follows."""
    if sample is not None:
        shale.runtime().set_sample(sample)
    x = shale.full((8, 64), 1.0)
    x.requires_grad = True
    seen = [F.dropout(x, 0.5, **({} if site is None else {"site": site})) for _ in range(count)]
    seen[0].sum().backward()
    return [y.detach().tolist() for y in seen]


class Dropout(unittest.TestCase):
    def test_masks(self):
        model = Mlp()
        model.shard(seed=1)
        optimizer = shale.Optimizer(model, "sgd")
        # Dropout masks are reproducible. They differ between the dropouts of a forward, between
        # forwards of a step, and between steps. Only dropouts with the same site number have equal
        # masks.
        def run():
            all_masks = []
            for step in (7, 8):
                optimizer.prepare(step, 0.1)
                all_masks += masks() + masks()
            return all_masks
        first, again = run(), run()
        self.assertEqual(first, again)
        self.assertEqual(len({str(mask) for mask in first}), 8)
        one, other = masks(site=3)
        self.assertEqual(one, other)
        # Samples 4 to 7 have the same masks wherever a forward begins.
        whole = masks(sample=0)
        half = masks(sample=4)
        for mask, part in zip(whole, half):
            self.assertEqual(mask[4:], part[:4])
        self.assertEqual(masks(sample=0), whole)


class Training(unittest.TestCase):
    def test_it_learns_and_resumes(self):
        with tempfile.TemporaryDirectory() as folder:
            whole, model = train(40, 0, folder)
            self.assertLess(whole[-1], 0.2 * whole[0])
            again, _ = train(40, 3, folder, begin=20)
            self.assertEqual(whole[20:], again)
            weight = model.read("first.weight")
            self.assertEqual(weight.shape, (16, 2))
            model.write("first.weight", weight)
            self.assertEqual(model.read("first.weight").tolist(), weight.tolist())
            with self.assertRaisesRegex(shale.ArgumentError, "clone"):
                model.first.weight.__dlpack__()

    def test_metrics(self):
        with tempfile.TemporaryDirectory() as folder:
            for last in (-1, 1):
                metrics = shale.Metrics(folder, last)
                for step in range(last + 2 if last < 0 else 2, 4):
                    metrics.write(step, 1 / step, lr=0.1)
                metrics.close()
            with open(f"{folder}/metrics.jsonl") as file:
                self.assertEqual(len(file.readlines()), 3)


def hash_of(text):
    """Returns a hash of a text that a double can represent exactly."""
    return zlib.crc32(text.encode())


def main_of_ranks(folder):
    """Several ranks: ZeRO stages agree, and a failing rank ends the job with its message."""
    with shale.init("cpu") as runtime:
        seen = str(masks())
        assert seen != str(masks()), "two forwards have one mask"
        held = str(masks(sample=0))
        assert runtime.sum(hash_of(held)) == runtime.ranks * hash_of(held)
        assert runtime.sum(hash_of(seen)) != runtime.ranks * hash_of(seen), "ranks have one mask"
        losses = [train(20, stage)[0] for stage in (0, 1, 2, 3)]
        assert all(other == losses[0] for other in losses), losses
        assert losses[0][-1] < losses[0][0]
        if folder == "fail" and runtime.rank == 1:
            shale.zeros((2,)) @ shale.zeros((3,))
        runtime.barrier()
    print("ranks agree")


def main_of_guest():
    """A program that has initialized MPI itself, as mpi4py does: Shale does not finalize it."""
    multiple, level, flag = 3, ctypes.c_int(), ctypes.c_int()
    mpi = shale._c  # its symbols include those of libraries that it links to, such as MPI
    assert mpi.MPI_Init_thread(None, None, multiple, ctypes.byref(level)) == 0
    for _ in range(2):
        with shale.init("cpu", timeout_s=60) as runtime:
            assert runtime.ranks == 2
            losses = train(5, 3)[0]
            assert runtime.sum(losses[-1]) == 2 * losses[-1]
    assert mpi.MPI_Finalized(ctypes.byref(flag)) == 0 and flag.value == 0
    assert mpi.MPI_Finalize() == 0
    print("guests left")


if __name__ == "__main__":
    if sys.argv[1:2] == ["ranks"]:
        main_of_ranks(sys.argv[2])
    elif sys.argv[1:2] == ["guest"]:
        main_of_guest()
    else:
        shale.init("cpu")
        unittest.main()
