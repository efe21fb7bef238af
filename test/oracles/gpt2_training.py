"""Computes losses of ten AdamW steps of GPT-2 in float64 with JAX.

The model is that of test/fixtures/gpt2/hf_tiny; each step uses all four windows from tokens().
test/quick/run.sh trains the same with train_lm and compares. Prints a step and its loss per line.
"""

import pathlib

import jax

jax.config.update("jax_enable_x64", True)
import jax.numpy as jnp
from safetensors.numpy import load_file

MODEL = pathlib.Path(__file__).resolve().parents[1] / "fixtures/gpt2/hf_tiny/model.safetensors"
LAYERS, HEADS, VOCAB, LENGTH, WINDOWS, STEPS = 2, 2, 96, 32, 4, 10
LR, BETA1, BETA2, EPS, DECAY, CLIP = 1e-3, 0.9, 0.95, 1e-8, 0.1, 1.0


def tokens():
    """Returns [WINDOWS, LENGTH + 1]; each window begins with the last token of the previous one."""
    stream = jnp.array([(7 * i * i + 3 * i) % VOCAB for i in range(WINDOWS * LENGTH + 1)])
    return jnp.stack([stream[w * LENGTH : (w + 1) * LENGTH + 1] for w in range(WINDOWS)])


def norm(x, p, name):
    centred = x - x.mean(-1, keepdims=True)
    variance = (centred**2).mean(-1, keepdims=True)
    return centred / jnp.sqrt(variance + 1e-5) * p[name + ".weight"] + p[name + ".bias"]


def linear(x, p, name):
    return x @ p[name + ".weight"] + p[name + ".bias"]


def attention(x, p, name):
    batch, length, width = x.shape
    qkv = linear(x, p, name + ".c_attn").reshape(batch, length, 3, HEADS, width // HEADS)
    q, k, v = (qkv[:, :, i].transpose(0, 2, 1, 3) for i in range(3))
    scores = q @ k.transpose(0, 1, 3, 2) / jnp.sqrt(width // HEADS)
    scores = jnp.where(jnp.tril(jnp.ones((length, length), bool)), scores, -jnp.inf)
    out = jax.nn.softmax(scores) @ v
    return linear(out.transpose(0, 2, 1, 3).reshape(x.shape), p, name + ".c_proj")


def loss_of(p, ids):
    x = p["wte.weight"][ids[:, :-1]] + p["wpe.weight"][:LENGTH]
    for i in range(LAYERS):
        x = x + attention(norm(x, p, f"h.{i}.ln_1"), p, f"h.{i}.attn")
        hidden = linear(norm(x, p, f"h.{i}.ln_2"), p, f"h.{i}.mlp.c_fc")
        x = x + linear(jax.nn.gelu(hidden, approximate=True), p, f"h.{i}.mlp.c_proj")
    log_p = jax.nn.log_softmax(norm(x, p, "ln_f") @ p["wte.weight"].T)
    return -jnp.take_along_axis(log_p, ids[:, 1:, None], axis=-1).mean()


def main():
    stored = load_file(MODEL)
    p = {name.removeprefix("transformer."): jnp.asarray(x, jnp.float64)
         for name, x in stored.items() if not name.startswith("lm_head")}
    m = {name: jnp.zeros_like(x) for name, x in p.items()}
    v = dict(m)
    step_of = jax.jit(jax.value_and_grad(loss_of))
    for step in range(1, STEPS + 1):
        loss, grads = step_of(p, tokens())
        print(step, f"{loss:.12f}")
        total = jnp.sqrt(sum((g**2).sum() for g in grads.values()))
        scale = jnp.minimum(1, CLIP / (total + 1e-6))
        for name, g in grads.items():
            m[name] = BETA1 * m[name] + (1 - BETA1) * g * scale
            v[name] = BETA2 * v[name] + (1 - BETA2) * (g * scale) ** 2
            update = m[name] / (1 - BETA1**step) / (jnp.sqrt(v[name] / (1 - BETA2**step)) + EPS)
            decay = DECAY if p[name].ndim == 2 else 0
            p[name] = p[name] - LR * (decay * p[name] + update)


if __name__ == "__main__":
    main()
