"""What a recipe costs before it runs: parameters, memory, products, and whether it fits."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import torch

from dares.train.activations import Activations, activations, layer_matrices
from dares.train.bank import Bank
from dares.train.recipe import Recipe, build_model
from dares.train.recipes import PAPER_SCHEMES

EXACT = 4  # bytes of a weight, of its gradient, and of each of AdamW's two moments
SPARE = 0.05  # share of a GPU's memory left to its driver and to fragmentation


@dataclass(frozen=True)
class Parameters:
    """How many there are, by where they are; the final norm counts with the layers."""

    embedding: int
    layers: int
    routers: int

    @property
    def total(self) -> int:
        """All of them; tied embeddings once."""
        return self.embedding + self.layers + self.routers


@dataclass(frozen=True)
class States:
    """Bytes a GPU holds through the whole run, and of layers gathered from other GPUs."""

    weights: int
    gradients: int
    optimizer: int
    gathered: int

    @property
    def total(self) -> int:
        """All of them."""
        return self.weights + self.gradients + self.optimizer + self.gathered


@dataclass(frozen=True)
class Case:
    """One scheme with or without checkpointing: one forward pass's bytes, and what fits.

    ddp_rows and fsdp_rows: the most rows a forward pass that fit, 0 where not even one does; None
    where no memory was given.
    """

    scheme: str
    checkpointing: bool
    activations: Activations
    ddp_fits: bool | None
    fsdp_fits: bool | None
    ddp_rows: int | None
    fsdp_rows: int | None


@dataclass(frozen=True)
class Plan:
    """See plan(). flops are a token's, forward and backward; recomputing: with checkpointing."""

    recipe: Recipe
    scheme: str  # the recipe's own among the cases
    gpus: int
    memory: int | None
    parameters: Parameters
    ddp: States
    fsdp: States
    tokens_per_step: int
    accumulation: int
    flops: int
    flops_recomputing: int
    cases: tuple[Case, ...]  # the recipe's own scheme first

    def to_dict(self) -> dict[str, Any]:
        """All of it, as plain JSON values."""
        found = asdict(self)
        found["parameters"]["total"] = self.parameters.total
        for name in ("ddp", "fsdp"):
            found[name]["total"] = getattr(self, name).total
        for case, told in zip(self.cases, found["cases"], strict=True):
            told["activations"] |= {"kept": case.activations.kept, "peak": case.activations.peak}
        return found | {"recipe": self.recipe.to_dict()}


def plan(recipe: Recipe, gpus: int = 1, memory: int | None = None) -> Plan:
    """What the recipe takes on that many GPUs with so many bytes each.

    Weights, gradients and AdamW's moments are float32: whole on each GPU under ddp (gradients in
    ddp's own buckets, gradient_as_bucket_view), a share each under fsdp.
    """
    share = _rows_a_gpu(recipe, gpus)
    counted = count_parameters(recipe)
    ddp, fsdp = _states(recipe, counted, 1), _states(recipe, counted, gpus)
    usable = None if memory is None else int(memory * (1 - SPARE))
    forward, layers = forward_flops(recipe)
    variants = {name: recipe.with_scheme(name) for name in PAPER_SCHEMES}
    known = (name for name, variant in variants.items() if variant.depth == recipe.depth)
    own = next(known, "the recipe's")
    variants = {own: recipe} | variants
    return Plan(
        recipe=recipe,
        scheme=own,
        gpus=gpus,
        memory=memory,
        parameters=counted,
        ddp=ddp,
        fsdp=fsdp,
        tokens_per_step=recipe.tokens_per_step,
        accumulation=share // recipe.batch.micro_rows,
        flops=3 * forward,
        flops_recomputing=3 * forward + layers,
        cases=tuple(
            _case(name, variant, checkpointing, share, usable, ddp, fsdp)
            for name, variant in variants.items()
            for checkpointing in (False, True)
        ),
    )


def count_parameters(recipe: Recipe) -> Parameters:
    """Counted on the model itself, built without memory."""
    with torch.device("meta"):
        model = build_model(recipe)
    routers = sum(p.numel() for p in model.base_model.depth.parameters())
    ends = {
        id(p): p
        for m in (model.get_input_embeddings(), model.get_output_embeddings())
        for p in m.parameters()
    }
    embedding = sum(p.numel() for p in ends.values())
    total = sum(p.numel() for p in model.parameters())
    return Parameters(embedding, total - embedding - routers, routers)


def forward_flops(recipe: Recipe) -> tuple[int, int]:
    """Of one token: the whole forward pass, and its layers alone, which checkpointing repeats.

    Two for each element of a matrix; attention over the half of the row that comes before, on
    average; a score and a mix for each source that a router reads.
    """
    shape = recipe.model
    attention = 2 * recipe.data.row_tokens * shape.heads * shape.head_dim
    depth = Bank.of(shape, recipe.depth).products()
    layers = shape.layers * (2 * layer_matrices(shape) + attention) + depth
    return layers + 2 * shape.width * shape.vocabulary, layers


def _rows_a_gpu(recipe: Recipe, gpus: int) -> int:
    if gpus < 1:
        raise ValueError(f"gpus must be at least 1, got {gpus}")
    rows, micro = recipe.batch.rows, recipe.batch.micro_rows
    if rows % (gpus * micro):
        raise ValueError(
            f"batch.rows must be a multiple of {gpus} GPUs times batch.micro_rows, "
            f"got {rows} and {micro}: change one of the three"
        )
    return rows // gpus


def _states(recipe: Recipe, counted: Parameters, shards: int) -> States:
    share = -(-counted.total // shards) * EXACT
    # fsdp, whole for a while: the root (embedding, routers) with its gradient; the layer at work
    # with its gradient, and the next one
    root, layer = counted.embedding + counted.routers, counted.layers // recipe.model.layers
    gathered = EXACT * (2 * root + 3 * layer) if shards > 1 else 0
    return States(weights=share, gradients=share, optimizer=2 * share, gathered=gathered)


def _case(
    name: str,
    recipe: Recipe,
    checkpointing: bool,
    share: int,
    usable: int | None,
    ddp: States,
    fsdp: States,
) -> Case:
    def needed(rows: int) -> int:
        return activations(recipe, recipe.depth, rows=rows, checkpointing=checkpointing).peak

    def most(states: States) -> int | None:
        if usable is None:
            return None
        splits = (rows for rows in range(share, 0, -1) if share % rows == 0)
        return next((rows for rows in splits if states.total + needed(rows) <= usable), 0)

    def fits(states: States) -> bool | None:
        return None if usable is None else states.total + now.peak <= usable

    micro = recipe.batch.micro_rows
    now = activations(recipe, recipe.depth, rows=micro, checkpointing=checkpointing)
    return Case(name, checkpointing, now, fits(ddp), fits(fsdp), most(ddp), most(fsdp))
