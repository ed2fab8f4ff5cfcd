"""What an iteration of PPO has to compute and to hold, counted from the model's shape.

Floating-point operations are those of matrix products, two for each multiplication with its addition; attention counts
every query with every key of its row, masked or not, since kernels given a mask compute both. What a kernel computes a
second time in the backward pass is no work that was needed and is not counted.

With x W for x [n, in], W [in, out]: forward 2 n in out, and backward the same for each of the gradients of x and W.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from bench.ppo.common import EPOCHS, Case

__all__ = ["PHASES", "Shape", "decode_bytes", "flops", "kept_bytes", "memory_bytes", "optimiser_bytes"]

PHASES = {
    "prefill": "rollout: prompts read",
    "decode": "rollout: tokens sampled",
    "preference": "scores of the preference model",
    "shared layers": "layers below the boundary, once for all passes",
    "log-probs": "log-probabilities under the reference (and, below float32, the policy)",
    "values": "the value model",
    "policy forward": "updates: policy",
    "policy backward": "updates: policy",
    "value forward": "updates: value model",
    "value backward": "updates: value model",
    "step": "updates: norms, clipping, AdamW",
}


@dataclass(frozen=True)
class Shape:
    """A Llama-like model, and what of it is trained.

    `first`: the lowest layer that is trained (0: all, or with adapters all have them); `rank`: of the adapters of all
    linear layers, 0: there are none, whole weights are trained.
    """

    vocabulary: int
    width: int
    layers: int
    heads: int
    key_heads: int
    head_width: int
    inner: int
    first: int = 0
    rank: int = 0

    @classmethod
    def of(cls, config: Any, first: int = 0, rank: int = 0) -> Shape:
        """From a transformers configuration. Head and embedding must be one."""
        if not config.tie_word_embeddings:
            raise ValueError("the arithmetic is that of a head tied to the embedding")
        heads = int(config.num_attention_heads)
        return cls(
            config.vocab_size, config.hidden_size, config.num_hidden_layers, heads, config.num_key_value_heads,
            getattr(config, "head_dim", None) or config.hidden_size // heads, config.intermediate_size, first, rank,
        )  # fmt: skip

    @property
    def linears(self) -> dict[str, tuple[int, int]]:
        """(in, out) of a layer's matrices."""
        queries, keys = self.heads * self.head_width, self.key_heads * self.head_width
        return {
            "q": (self.width, queries), "k": (self.width, keys), "v": (self.width, keys), "o": (queries, self.width),
            "gate": (self.width, self.inner), "up": (self.width, self.inner), "down": (self.inner, self.width),
        }  # fmt: skip

    @property
    def head(self) -> int:
        """Numbers of the language-model head, the embedding."""
        return self.vocabulary * self.width

    @property
    def layer(self) -> int:
        """Numbers of a layer's matrices."""
        return sum(a * b for a, b in self.linears.values())

    @property
    def numbers(self) -> int:
        """Of the whole model, norms included."""
        return self.head + self.layers * (self.layer + 2 * self.width) + self.width

    @property
    def trained(self) -> int:
        """Numbers that a policy trains."""
        above = self.layers - self.first
        if self.rank:
            return above * self.rank * sum(a + b for a, b in self.linears.values())
        if self.first == 0:
            return self.numbers
        return above * (self.layer + 2 * self.width) + self.width

    def products(self, rows: int, adapted: bool, names: tuple[str, ...] = ()) -> int:
        """A layer's matrices times `rows` states, with the adapters where it has them; `names`: some of them."""
        chosen = [size for name, size in self.linears.items() if not names or name in names]
        own = sum(a * b for a, b in chosen) + (self.rank * sum(a + b for a, b in chosen) if adapted else 0)
        return 2 * rows * own

    def attention(self, queries: int, keys: int) -> int:
        """Of one layer and row."""
        return 4 * self.heads * self.head_width * queries * keys

    def forward(self, rows: int, length: int, first: int, last: int, *, adapters: bool) -> int:
        """Layers `first` to `last - 1` over `rows` sequences of `length`; `adapters`: whether the role has them."""
        above = max(0, last - max(first, self.first)) if adapters and self.rank else 0
        plain = self.products(rows * length, False) + rows * self.attention(length, length)
        adapted = self.products(rows * length, True) + rows * self.attention(length, length)
        return (last - first - above) * plain + above * adapted

    def backward(self, rows: int, length: int) -> int:
        """Of the trained layers: gradients of states, and of weights or adapters."""
        tokens = rows * length
        to_states = self.products(tokens, self.rank > 0)
        to_weights = (
            2 * tokens * (self.rank * sum(a + b for a, b in self.linears.values()) if self.rank else self.layer)
        )
        every = (self.layers - self.first) * (to_states + to_weights + 2 * rows * self.attention(length, length))
        if not self.rank:
            return every  # down to the weights of the norm that the lowest layer begins with, or to the embedding
        # what adapters of the lowest layer read needs no gradient; their inner states do
        into = sum(a * b + self.rank * a for name, (a, b) in self.linears.items() if name in ("q", "k", "v"))
        return every - 2 * tokens * into


def flops(shape: Shape, case: Case) -> dict[str, int]:
    """Floating-point operations of an iteration, by phase of `PHASES`; the same for all iterations but the first."""
    rows, length, layers = case.batch, case.prompt + case.response, shape.layers
    answers = rows * case.response
    head = 2 * shape.head
    # a value head reads every position
    scalar = 2 * shape.width * rows * length
    # a step's forward pass counts one query with one key: there are as many keys as tokens so far
    step = sum(
        shape.forward(rows, 1, 0, layers, adapters=True)
        + layers * rows * (shape.attention(1, case.prompt + t) - shape.attention(1, 1))
        for t in range(1, case.response)
    )
    last = shape.products(rows * length, False, ("q", "k", "v")) + shape.products(rows, False)
    # what lies below the boundary is lent to it
    preference = (
        shape.forward(rows, length, shape.first, layers - 1, adapters=False) + last + rows * shape.attention(1, length)
    )
    top = shape.forward(rows, length, shape.first, layers, adapters=False)
    own = shape.forward(rows, length, shape.first, layers, adapters=True)
    below = shape.forward(rows, length, 0, shape.first, adapters=False)
    back = shape.backward(rows, length)
    # a frozen head hands a gradient to the states alone, and does so in the forward pass
    frozen = shape.first > 0 or shape.rank > 0
    again = case.precision != "float32"
    return {
        "prefill": shape.forward(rows, case.prompt, 0, layers, adapters=True),
        "decode": step + answers * head,
        "preference": preference + 2 * shape.width * rows,
        "shared layers": below,
        "log-probs": top + answers * head + (own + answers * head if again else 0),
        "values": own + scalar,
        "policy forward": EPOCHS * (own + answers * head * (2 if frozen else 1)),
        "policy backward": EPOCHS * (back + (0 if frozen else 2 * answers * head)),
        "value forward": EPOCHS * (own + scalar),
        "value backward": EPOCHS * (back + 2 * scalar),
        "step": 0,
    }


def decode_bytes(shape: Shape, case: Case) -> int:
    """Bytes that decoding has to read: in every step all weights, and the keys and values so far.

    In the dtype of computation: what is trained in float32 is cast once a rollout.
    """
    size = 4 if case.precision == "float32" else 2
    adapters = shape.trained if shape.rank else 0
    weights = shape.head + shape.layers * shape.layer + adapters
    keys = 2 * shape.layers * shape.key_heads * shape.head_width * case.batch
    body = sum(weights - shape.head + keys * (case.prompt + t) for t in range(1, case.response))
    return size * (body + case.response * shape.head)


def optimiser_bytes(shape: Shape) -> int:
    """Bytes that the updates' steps have to read and write: AdamW's 28 a number, and a norm of the gradients, 4."""
    return EPOCHS * 32 * (2 * shape.trained + shape.width)


def kept_bytes(shape: Shape, case: Case) -> int:
    """Bytes that the layers of a whole model keep for the backward pass.

    For each token: what a norm reads and its output before and after the weights (twice), queries, keys and values,
    attention's output, and four times the inner width of the MLP.
    """
    size = 4 if case.precision == "float32" else 2
    heads = 2 * (shape.heads + shape.key_heads) * shape.head_width
    return (
        case.batch * (case.prompt + case.response) * shape.layers * (6 * shape.width + heads + 4 * shape.inner) * size
    )


def memory_bytes(shape: Shape, case: Case) -> int:
    """Bytes at the peak, of whole models.

    Weights of four roles, gradients and AdamW's moments of two, what one backward pass keeps, and the probabilities of
    the responses' tokens.
    """
    if shape.first or shape.rank:
        raise ValueError("counted for whole models alone")
    size = 4 if case.precision == "float32" else 2
    fixed = shape.numbers * (2 * size + 2 * (4 + 4 + 8))
    return fixed + kept_bytes(shape, case) + case.batch * case.response * shape.vocabulary * 4
