"""A decoder of PyTorch with random weights that computes one token again and again.

    gaptrace profile --arms per_launch,graph benchmarks/programs/torch_decoder.py --size small

It prints the median step, by the host's clock, from the first launch to when the host knows that
the device is done. The token's place in the cache stays the same, so that every step is alike.
"""

import argparse

import torch
import torch.nn.functional as f
from timed_steps import add_option, print_median_step

import gaptrace

#: layers, width, heads, width of the feed-forward, places in the cache
SIZES = {
    "tiny": (6, 512, 8, 1_408, 256),
    "small": (16, 1_024, 16, 2_816, 512),
    "medium": (24, 2_048, 16, 5_632, 1_024),
    "large": (32, 4_096, 32, 11_008, 1_024),
}


class Block(torch.nn.Module):
    """Attention over a cache of fixed size, gated feed-forward, each behind a norm."""

    def __init__(self, width, heads, inner, places):
        super().__init__()
        self.one_head, self.place = (1, heads, 1, width // heads), places - 1
        shapes = {
            "qkv": (width, 3 * width),
            "out": (width, width),
            "gate": (width, inner),
            "up": (width, inner),
            "down": (inner, width),
            "keys": (1, heads, places, width // heads),
            "values": (1, heads, places, width // heads),
        }
        for name, shape in shapes.items():
            numbers = torch.randn(shape, device="cuda", dtype=torch.float16)
            self.register_buffer(name, numbers / shape[-2] ** 0.5)

    def attend(self, x):
        width = x.shape[-1]
        query, key, value = (f.rms_norm(x, (width,)) @ self.qkv).chunk(3, -1)
        self.keys[:, :, self.place] = key.view(self.one_head)[:, :, 0]
        self.values[:, :, self.place] = value.view(self.one_head)[:, :, 0]
        scores = query.view(self.one_head) @ self.keys.transpose(-1, -2) / self.one_head[-1] ** 0.5
        found = torch.softmax(scores.float(), -1).half() @ self.values
        return found.reshape(1, width) @ self.out

    def feed(self, x):
        x = f.rms_norm(x, (x.shape[-1],))
        return (f.silu(x @ self.gate) * (x @ self.up)) @ self.down


class Decoder(torch.nn.Module):
    """Blocks one after the other; with branches, both parts of each side by side on two streams."""

    def __init__(self, layers, width, heads, inner, places, *, branches):
        super().__init__()
        self.blocks = torch.nn.ModuleList(Block(width, heads, inner, places) for _ in range(layers))
        self.register_buffer(
            "head", torch.randn(width, 32_000, device="cuda", dtype=torch.float16) / width**0.5
        )
        self.side = torch.cuda.Stream() if branches else None

    def forward(self, x):
        for block in self.blocks:
            if self.side is None:
                x = x + block.attend(x)
                x = x + block.feed(x)
            else:
                x = self.side_by_side(block, x)
        return x @ self.head

    def side_by_side(self, block, x):
        main = torch.cuda.current_stream()
        self.side.wait_stream(main)
        with torch.cuda.stream(self.side):
            fed = block.feed(x)
        attended = block.attend(x)
        main.wait_stream(self.side)
        return x + attended + fed


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", choices=SIZES, default="small")
    parser.add_argument("--branches", action="store_true", help="attention beside feed-forward")
    parser.add_argument("--compile", metavar="MODE", help="of torch.compile, as reduce-overhead")
    parser.add_argument("--steps", type=int, default=30)
    add_option(parser)
    options = parser.parse_args()
    torch.manual_seed(0)
    decoder = Decoder(*SIZES[options.size], branches=options.branches)
    compute = torch.compile(decoder, mode=options.compile) if options.compile else decoder
    x = torch.randn(1, SIZES[options.size][1], device="cuda", dtype=torch.float16)

    @gaptrace.step(name="token")
    def token(x):
        return compute(x)

    def run():
        token(x)
        torch.cuda.synchronize()

    with torch.no_grad():
        print_median_step(run, options.steps, full_pace=options.full_pace)


if __name__ == "__main__":
    main()
