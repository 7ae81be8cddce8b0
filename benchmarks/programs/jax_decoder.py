"""A decoder of JAX with random weights that computes one token again and again.

    gaptrace profile benchmarks/programs/jax_decoder.py --command-buffers off

XLA makes CUDA graphs ("command buffers") of the kernels of a compiled function, or launches them
one by one. It prints the median step, by the host's clock.
"""

import argparse
import os

from timed_steps import add_option, print_median_step

import gaptrace

FLAGS = {
    # No command at all may be put into a command buffer.
    "off": "--xla_gpu_enable_command_buffer=",
    "default": "",
    "on": "--xla_gpu_graph_min_graph_size=1",
}


def decoder(jax, layers, width, inner, places):
    """Return the step and its arguments."""
    jnp = jax.numpy
    keys = iter(jax.random.split(jax.random.PRNGKey(0), 8 * layers + 1))

    def matrix(*shape):
        return (jax.random.normal(next(keys), shape) / shape[0] ** 0.5).astype(jnp.float16)

    weights = [
        {
            "qkv": matrix(width, 3 * width),
            "out": matrix(width, width),
            "gate": matrix(width, inner),
            "up": matrix(width, inner),
            "down": matrix(inner, width),
            "keys": matrix(places, width),
            "values": matrix(places, width),
        }
        for _ in range(layers)
    ]

    def norm(x):
        x = x.astype(jnp.float32)
        return (x / jnp.sqrt((x * x).mean() + 1e-6)).astype(jnp.float16)

    def step(weights, x):
        for layer in weights:
            query, key, value = jnp.split(norm(x) @ layer["qkv"], 3, -1)
            keys = layer["keys"].at[-1].set(key[0])
            values = layer["values"].at[-1].set(value[0])
            scores = (query @ keys.T).astype(jnp.float32) / width**0.5
            x = x + (jax.nn.softmax(scores).astype(jnp.float16) @ values) @ layer["out"]
            fed = norm(x)
            x = x + (jax.nn.silu(fed @ layer["gate"]) * (fed @ layer["up"])) @ layer["down"]
        return x

    return jax.jit(step), weights, matrix(1, width)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--command-buffers", choices=FLAGS, default="default")
    parser.add_argument("--layers", type=int, default=16)
    parser.add_argument("--steps", type=int, default=30)
    add_option(parser)
    options = parser.parse_args()
    flags = f"{os.environ.get('XLA_FLAGS', '')} {FLAGS[options.command_buffers]}".strip()
    os.environ |= {"XLA_FLAGS": flags, "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    import jax  # reads its flags once

    compiled, weights, x = decoder(jax, options.layers, 1_024, 2_816, 512)

    @gaptrace.step(name="token")
    def token():
        return compiled(weights, x).block_until_ready()

    print_median_step(token, options.steps, full_pace=options.full_pace)


if __name__ == "__main__":
    main()
