"""Tests tensors of the Python module with the standard library alone. Tests that need torch are
skipped if it is missing.

Run: tensor_test.py
"""

import array
import ctypes
import gc
import math
import subprocess
import sys
import threading
import unittest

import shale
from shale import functions as F


class Values(unittest.TestCase):
    def test_lists_come_back(self):
        for dtype in ("float32", "float16", "float64", "int32", "int64", "uint8", "uint16"):
            x = shale.tensor([[1, 2, 3], [4, 5, 6]], dtype)
            self.assertEqual((x.shape, x.dtype), ((2, 3), dtype))
            self.assertEqual(x.tolist(), [[1, 2, 3], [4, 5, 6]])
        self.assertEqual(shale.tensor([1.5, -2]).cast("bfloat16").tolist(), [1.5, -2])
        self.assertEqual(shale.tensor([]).tolist(), [])
        with self.assertRaisesRegex(shale.ArgumentError, "nested lists"):
            shale.tensor([[1, 2], [3]])

    def test_repr_shows_values(self):
        self.assertEqual(repr(shale.tensor([[1, 2], [3, 40]])),
                         "shale.Tensor([[ 1,  2],\n"
                         "              [ 3, 40]], shape=(2, 2), dtype=int32, device=cpu)")
        x = shale.tensor([0.5, -1.0, math.nan], requires_grad=True)
        self.assertEqual(repr(x * 2), "shale.Tensor([ 1., -2., nan], shape=(3,), dtype=float32, "
                                      "device=cpu)")
        self.assertEqual(repr(shale.full((), 3.25, "bfloat16")),
                         "shale.Tensor(3.25, shape=(), dtype=bfloat16, device=cpu)")
        self.assertEqual(repr(shale.zeros((2, 0))),
                         "shale.Tensor([[],\n              []], shape=(2, 0), dtype=float32, "
                         "device=cpu)")

    def test_repr_of_large_tensors_is_short(self):
        grid = shale.tensor([[100 * i + j for j in range(100)] for i in range(100)]).transpose()
        lines = repr(grid).split("\n")
        self.assertEqual(len(lines), 7)
        self.assertEqual(lines[1].split(), ["[", "1,", "101,", "201,", "...,", "9701,", "9801,",
                                            "9901],"])
        self.assertEqual(lines[3].strip(), "...,")
        self.assertIn("shape=(100, 100)", lines[6])
        self.assertLess(len(repr(shale.zeros((9, 9, 9, 9)))), 20000)

    def test_functions_are_those_of_mathematics(self):
        x = shale.tensor([[0.5, -1.0], [2.0, 0.25]])
        self.assertAlmostEqual((F.exp(x).sum()).item(), sum(map(math.exp, (0.5, -1, 2, 0.25))), 5)
        self.assertEqual((2 - x).tolist(), [[1.5, 3], [0, 1.75]])
        self.assertEqual((1 / x)[1].tolist(), [0.5, 4])
        self.assertEqual((x @ x).tolist(), [[-1.75, -0.75], [1.5, -1.9375]])
        self.assertEqual(x.transpose()[:, 1].tolist(), [2, 0.25])
        self.assertEqual(F.max(x, 1).tolist(), [0.5, 2])
        self.assertEqual(F.concat([x, x], 1).shape, (2, 4))

    def test_gradients(self):
        x = shale.tensor([1.0, 2.0, 3.0], requires_grad=True)
        self.assertIsNone(x.grad)
        (x * x * 0.5).sum().backward()
        self.assertEqual(x.grad.tolist(), [1, 2, 3])
        x.zero_grad()
        self.assertIsNone(x.grad)
        with shale.inference(), self.assertRaises(shale.ArgumentError):
            x.sum().backward()


class Comparisons(unittest.TestCase):
    def test_they_are_of_elements(self):
        x, y = shale.tensor([1.0, 2.0, 3.0]), shale.tensor([1.0, 5.0, 2.0])
        for compare, wanted in ((lambda a, b: a == b, [1, 0, 0]), (lambda a, b: a != b, [0, 1, 1]),
                                (lambda a, b: a < b, [0, 1, 0]), (lambda a, b: a <= b, [1, 1, 0]),
                                (lambda a, b: a > b, [0, 0, 1]), (lambda a, b: a >= b, [1, 0, 1])):
            self.assertEqual(compare(x, y).tolist(), wanted)
        self.assertEqual(((x == 2).tolist(), (2 == x).tolist()), ([0, 1, 0], [0, 1, 0]))
        self.assertEqual(((x != 2).tolist(), (2 > x).tolist()), ([1, 0, 1], [1, 0, 0]))
        self.assertEqual((x * (y == 2).cast("float32")).sum().item(), 3)
        nan = shale.tensor([math.nan])
        self.assertEqual(((nan == nan).item(), (nan != nan).item()), (0, 1))
        with self.assertRaisesRegex(shale.ArgumentError, "equal: .*\\[2\\]"):
            x == shale.zeros((2,))

    def test_others_are_not_equal(self):
        x = shale.zeros((2,))
        self.assertIs(x == None, False)  # noqa: E711
        self.assertIs(x != "text", True)
        with self.assertRaises(TypeError):
            x < None

    def test_hashes_are_by_identity(self):
        x, y = shale.zeros((2,)), shale.zeros((2,))
        self.assertEqual(len({x, y, x}), 2)
        self.assertEqual({x: 1, y: 2}[y], 2)

    def test_truth_is_of_one_element(self):
        self.assertTrue(shale.tensor([[2.0]]))
        self.assertFalse(shale.zeros(()))
        for x in (shale.zeros((2,)), shale.zeros((0,))):
            with self.assertRaisesRegex(shale.ArgumentError, "bool: .* elements"):
                bool(x)
            with self.assertRaises(shale.ArgumentError):
                not x
        with self.assertRaisesRegex(shale.ArgumentError, "bool"):
            shale.zeros((2,)) in [shale.zeros((2,))]
        grid = shale.tensor([[1.0, 2.0], [3.0, 4.0]])
        self.assertEqual((3 in grid, 5 in grid), (True, False))


class SharedMemory(unittest.TestCase):
    def test_buffers_are_shared_and_held(self):
        values = array.array("f", range(6))
        x = shale.as_tensor(values)
        values[2] = 9
        self.assertEqual(x.tolist(), [0, 1, 9, 3, 4, 5])
        with self.assertRaises(BufferError):  # an exported buffer keeps its size
            values.append(1)
        del x
        gc.collect()
        values.append(1)

    def test_graphs_hold_memory(self):
        values = array.array("f", [2, 3])
        weight = shale.tensor([1.0, 1.0], requires_grad=True)
        loss = (shale.as_tensor(values) * weight).sum()
        with self.assertRaises(BufferError):
            values.append(1)
        loss.backward()
        self.assertEqual(weight.grad.tolist(), [2, 3])
        del loss
        values.append(1)

    def test_read_only_stays_so(self):
        x = shale.as_tensor(b"abc")
        self.assertEqual(x.tolist(), [97, 98, 99])
        with self.assertRaisesRegex(shale.ArgumentError, "read-only"):
            x.write([1, 2, 3])
        self.assertTrue(x.__array_interface__["data"][1])

    def test_strides(self):
        grid = memoryview(array.array("i", range(12))).cast("B").cast("i", (3, 4))
        x = shale.as_tensor(grid)
        self.assertEqual(x.tolist(), grid.tolist())
        every_second = shale.as_tensor(memoryview(array.array("f", range(6)))[::2])
        self.assertEqual(every_second.tolist(), [0, 2, 4])
        with self.assertRaisesRegex(shale.ArgumentError, "-1"):
            shale.as_tensor(memoryview(array.array("f", range(6)))[::-1])

    def test_array_interface(self):
        x = shale.tensor([[1.0, 2, 3], [4, 5, 6]]).transpose()
        shown = x.__array_interface__
        self.assertEqual((shown["shape"], shown["strides"], shown["typestr"]),
                         ((3, 2), (4, 12), "<f4"))
        memory = (ctypes.c_float * 6).from_address(shown["data"][0])
        memory[0] = 7
        self.assertEqual(x.tolist(), [[7, 4], [2, 5], [3, 6]])
        self.assertIs(shale.as_tensor(x), x)

    def test_dlpack_there_and_back(self):
        for version in (None, (1, 1)):
            x = shale.tensor([[1, 2], [3, 4]], "int64")
            capsule = x.__dlpack__(max_version=version)
            y = shale.from_dlpack(capsule)
            with self.assertRaisesRegex(shale.ArgumentError, "was not used yet"):
                shale.from_dlpack(capsule)
            del x, capsule
            gc.collect()
            self.assertEqual(y.tolist(), [[1, 2], [3, 4]])
            z = shale.from_dlpack(y)
            y.write(shale.tensor([[5, 6], [7, 8]], "int64"))
            self.assertEqual(z.tolist(), [[5, 6], [7, 8]])

    def test_capsules_that_nobody_takes_let_go(self):
        before = shale.runtime().usage()["allocated"]
        for _ in range(3):
            shale.zeros((1 << 18,)).__dlpack__()
        gc.collect()
        self.assertEqual(shale.runtime().usage()["allocated"], before)


class Threads(unittest.TestCase):
    def test_calls_from_several(self):
        problems = []

        def work(number):
            try:
                for _ in range(50):
                    x = shale.full((16, 16), number, "float32")
                    x.requires_grad = True
                    (x * x).sum().backward()
                    if x.grad[0, 0].item() != 2 * number:
                        problems.append(number)
            except Exception as error:
                problems.append(error)
        threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(problems, [])


class Torch(unittest.TestCase):
    def setUp(self):
        try:
            import torch
        except ImportError:
            self.skipTest("there is no torch")
        self.torch = torch

    def test_tensors_share_memory(self):
        torch = self.torch
        t = torch.arange(6, dtype=torch.bfloat16).reshape(2, 3)
        x = shale.from_dlpack(t.T)
        t[0, 0] = 9
        self.assertEqual(x.tolist(), [[9, 3], [1, 4], [2, 5]])
        back = torch.from_dlpack(x)
        del x, t
        gc.collect()
        back[0, 0] = 7
        self.assertEqual(back.float().tolist(), [[7, 3], [1, 4], [2, 5]])
        self.assertEqual(shale.tensor(torch.tensor([1.5, 2])).tolist(), [1.5, 2])

    def test_products_agree(self):
        torch = self.torch
        a, b = torch.randn(17, 5, requires_grad=True), torch.randn(5, 9)
        x = shale.tensor(a.detach())
        x.requires_grad = True
        loss = ((x @ shale.from_dlpack(b)) ** 2).sum()
        loss.backward()
        ((a @ b) ** 2).sum().backward()
        torch.testing.assert_close(torch.from_dlpack(x.grad), a.grad)


class Exits(unittest.TestCase):
    """Programs that exit while tensors and capsules exist, and forked processes."""

    def test_nothing_is_said(self):
        for text in ("keep = [shale.zeros((2,)) for _ in range(3)]\n"
                     "shown = [(x, x.__array_interface__, x.__dlpack__()) for x in keep]\n"
                     "sys.kept = shown",
                     "import tempfile\nmetrics = shale.Metrics(tempfile.mkdtemp())\n"
                     "if os.fork() == 0:\n    sys.exit(0)\nassert os.wait()[1] == 0"):
            done = subprocess.run(
                [sys.executable, "-c", f"import os, sys, shale\nshale.init('cpu')\n{text}"],
                capture_output=True, text=True)
            self.assertEqual((done.returncode, done.stderr), (0, ""))


if __name__ == "__main__":
    shale.init("cpu")
    unittest.main()
