"""Computes functions of tensors and their gradients in float64 with JAX.

Element i of the input number n is sin(1 + i + 10 n); the loss is the sum of y_i cos(i). Prints the
case, "y" or the input's number, the element, and the value. test/runtime/ops/oracle.cpp computes
the same with Shale's functions.
"""

import jax

jax.config.update("jax_enable_x64", True)
import jax.numpy as jnp

INDEX = jnp.array([[2, 0], [1, 3], [3, 2]])  # column numbers for a tensor [3, 4]
LINES = jnp.arange(3)[:, None]


def in_place(x, part):
    y = 2 * x
    y = y.at[1:, 1:3].set(part)
    y = y.at[:, 2].set(y[:, 0])
    return y * y


CASES = {
    "operators": ([(3, 4), (4,)], lambda a, b: -(2 * a + b) / (3 - a) + (1 - b) * a / 4 - 1 / (2 + b)),
    "comparisons": ([(3, 4), (4,)], lambda a, b: jnp.where(a > b, a * b, 0) + (a <= 0.5) * b),
    "dot": ([(5,), (5,)], lambda a, b: a @ b),
    "row": ([(5,), (5, 3)], lambda a, b: a @ b),
    "column": ([(2, 3, 5), (5,)], lambda a, b: a @ b),
    "cumsum_rows": ([(3, 4)], lambda x: jnp.cumsum(x, 0) ** 2),
    "cumsum_columns": ([(3, 4)], lambda x: jnp.cumsum(x, 1) ** 2),
    "gather": ([(3, 4)], lambda x: jnp.take_along_axis(x, INDEX, 1) ** 2),
    "scatter": ([(3, 4), (3, 2)], lambda x, s: x.at[LINES, INDEX].set(s) ** 2),
    "scatter_add": ([(3, 4), (3, 2)], lambda x, s: x.at[LINES, INDEX].add(s) ** 2),
    "in_place": ([(3, 4), (2, 2)], in_place),
    "linspace": ([(5,)], lambda x: x * jnp.linspace(-1, 2, 5) + jnp.arange(5)),
}

for name, (shapes, function) in CASES.items():
    inputs = []
    for n, shape in enumerate(shapes):
        count = 1
        for size in shape:
            count *= size
        inputs.append(jnp.sin(1.0 + jnp.arange(count) + 10 * n).reshape(shape))
    y = function(*inputs)
    grads = jax.grad(lambda *x: (function(*x).ravel() * jnp.cos(jnp.arange(y.size) * 1.0)).sum(),
                     argnums=tuple(range(len(inputs))))(*inputs)
    for part, values in [("y", y), *enumerate(grads)]:
        for i, value in enumerate(jnp.atleast_1d(values).ravel()):
            print(f"{name}.{part}.{i} {value:.12f}")
