"""What a training pass keeps for its backward, in bytes: a formula to follow, not a fit.

It counts what eager PyTorch keeps of transformers' Qwen3 with SDPA attention, one tensor a line,
under float32 or under bf16 autocast. There the stream, the norms and the sources stay in float32,
the branches are in bf16, and every matrix product casts its own inputs: the normed stream is kept
once for each of q, k and v, and weights have a bf16 copy. Small things (token ids, rotary tables)
are left out. What is kept is tested against measured bytes (tests/train/test_plan.py), on a CPU: a
GPU's flash kernels keep the same tensors, but nothing here has been measured on one. What comes and
goes is rougher: the peak so estimated was 0.98 to 1.2 times the process's own, on a CPU.
"""

from __future__ import annotations

from dataclasses import dataclass

from dares.config import SchemeConfig
from dares.train.bank import EXACT, Bank
from dares.train.recipe import ModelShape, Recipe

BRANCH = {"fp32": 4, "bf16": 2}  # bytes of what is inside attention and MLP


@dataclass(frozen=True)
class Activations:
    """Bytes of one forward pass.

    layers   norms, attention, MLP and the bf16 copies of their weights; with checkpointing each
             layer's input alone
    depth    sources, scores, and what the routed reads keep
    loss     the final norm's and the head's inputs, the head's bf16 copy, the log-probabilities
    working  the most that comes and goes on top of these
    """

    layers: int
    depth: int
    loss: int
    working: int

    @property
    def kept(self) -> int:
        """What is held for the backward when the forward ends."""
        return self.layers + self.depth + self.loss

    @property
    def peak(self) -> int:
        """With the most that comes and goes on top."""
        return self.kept + self.working


def activations(
    recipe: Recipe, depth: SchemeConfig, *, rows: int, checkpointing: bool
) -> Activations:
    """The bytes of one forward pass over that many rows, under a scheme."""
    shape, tokens = recipe.model, rows * recipe.data.row_tokens
    if shape.family != "qwen3":
        raise ValueError(
            f"the activation formula is that of family 'qwen3', got {shape.family!r}: "
            "measure the others with dares.bench.workloads.saved_bytes"
        )
    if recipe.run.backend == "naive":
        raise ValueError(
            "backend 'naive' keeps every site's bank, which the activation formula does not count: "
            "plan with run.backend=auto"
        )
    branch, half = BRANCH[recipe.run.precision], recipe.run.precision == "bf16"
    bank = Bank.of(shape, depth)
    layer = tokens * layer_bytes_a_token(shape, branch) + half * 2 * layer_matrices(shape)
    border = tokens * shape.width * EXACT
    head = half * 2 * shape.vocabulary * shape.width
    loss = tokens * (norm_bytes(1, shape.width) + branch * shape.width + EXACT * shape.vocabulary)
    logits = tokens * shape.vocabulary
    # at the end of the forward: the logits, and under bf16 their float32 copy
    forward_working = logits * (branch + half * EXACT)
    # then the gradients of log-probabilities and logits, gone when the layers' backward begins
    loss_working = 2 * EXACT * logits
    layer_working = tokens * 3 * branch * shape.mlp  # gradients inside an MLP
    if checkpointing:
        # autocast forgets its copies of the weights when the forward ends, and not before
        forward_working += half * shape.layers * 2 * layer_matrices(shape)
        # A layer's own tensors come back. With routers so do those of the layer that opened the
        # group: the group's softmax is kept there.
        layer_working += layer * (2 if bank.shares_sums else 1)
        layer_working += tokens * bank.working_when_checkpointed()
    else:
        layer_working += tokens * bank.working()
    return Activations(
        layers=shape.layers * (border if checkpointing else layer),
        depth=tokens * (bank.kept_when_checkpointed() if checkpointing else bank.kept()),
        loss=loss + head,
        working=max(forward_working, loss_working, layer_working - loss - head),
    )


def layer_matrices(shape: ModelShape) -> int:
    """Elements of a layer's seven matrices."""
    queries, keys = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    return shape.width * (2 * queries + 2 * keys + 3 * shape.mlp)


def norm_bytes(vectors: int, width: int, normed: int = EXACT) -> int:
    """An RMSNorm's: its input, the inverse root mean squares, the normed input without gain."""
    return vectors * (width * (EXACT + normed) + EXACT)


def layer_bytes_a_token(shape: ModelShape, branch: int) -> int:
    """What one decoder layer keeps for a token, whatever the scheme."""
    width = shape.width
    queries, keys = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    casts = branch != EXACT  # each product keeps its own bf16 copy of the normed stream
    attention = (
        norm_bytes(1, width)
        + (3 if casts else 1) * branch * width  # what the q, k and v projections read
        + norm_bytes(shape.heads, shape.head_dim, branch)
        + norm_bytes(shape.kv_heads, shape.head_dim, branch)
        + branch * (queries + 2 * keys)  # q and k after rotation, v
        + branch * queries  # SDPA's output, which the output projection reads
        + EXACT * shape.heads  # SDPA's log-sum-exp
    )
    mlp = (
        norm_bytes(1, width)
        + (2 if casts else 1) * branch * width  # what the gate and up projections read
        + 4 * branch * shape.mlp  # gate, its activation, up, and their product
    )
    return attention + mlp
