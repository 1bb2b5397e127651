"""One optimizer step, and one validation, of a model that may be shared out over ranks."""

from __future__ import annotations

import math
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from dares.data.loader import Loader, batch_of
from dares.data.rows import Rows
from dares.routing.metrics import Sharpness, sharpness_by_site
from dares.train.optim import build_optimizer, set_learning_rate
from dares.train.parallel import Ranks, accumulating, fill, inner, share_out
from dares.train.recipe import Recipe, build_model

SEEDS = 2**63


@dataclass(frozen=True)
class StepResult:
    """What a step gave; `taken` is False where it was skipped, its gradients not being finite."""

    loss: float
    lr: float
    gradient_norm: float
    taken: bool


class Engine:
    """The model, its optimizer, and how they are computed."""

    def __init__(self, recipe: Recipe, ranks: Ranks, *, reshard: bool = True) -> None:
        run = recipe.run
        self.recipe, self.ranks = recipe, ranks
        torch.manual_seed(run.seed)
        sharded = ranks.mode == "fsdp"
        whole: Any = build_model(recipe) if ranks.first or not sharded else None
        self.frozen_base = _frozen_base(recipe, whole) if ranks.first else None
        model = _build_on_meta(recipe) if sharded else whole.to(ranks.device)
        model.train()
        model.config.use_cache = False
        if run.gradient_checkpointing:
            model.gradient_checkpointing_enable()
        if run.compile:
            model.compile()  # in place: the parameters keep their names
        self.network = share_out(model, ranks, bf16=run.precision == "bf16", reshard=reshard)
        if sharded:
            fill(model, whole, ranks)
        self.model = inner(self.network)
        self.optimizer = build_optimizer(self.model, recipe.optim)

    def step(self, loader: Loader, step: int) -> StepResult:
        """Forward and backward over this rank's rows, then one step of the optimizer.

        The loss is the mean over all tokens that the step predicts, on whichever rank they are.
        """
        recipe, ranks = self.recipe, self.ranks
        self._seed(step)
        share = recipe.batch.rows // ranks.world
        parts = max(1, share // recipe.batch.micro_rows)
        # DDP and FSDP average over ranks, the loss does not: hence the world
        predicted = max(1, loader.predicted(step)) / ranks.world
        local = torch.zeros((), dtype=torch.float64, device=ranks.device)
        for part in range(parts):
            batch = self._on_device(loader.batch(step, part, parts))
            with accumulating(self.network, last=part == parts - 1):
                with self._precision():
                    # a tensor: torch.compile would make a graph for every plain number
                    items = torch.tensor(predicted, device=ranks.device)
                    loss = self.network(**batch, num_items_in_batch=items).loss
                loss.backward()
            local += loss.detach()
        norm = self._clip()
        (loss_sum,) = ranks.sum(local.item())
        mean = loss_sum / ranks.world
        lr = set_learning_rate(self.optimizer, step, recipe.run.steps, recipe.optim)
        taken = math.isfinite(mean) and math.isfinite(norm)
        if taken:
            self.optimizer.step()
        self.optimizer.zero_grad()
        return StepResult(mean, lr, norm, taken)

    @torch.no_grad()
    def validate(self, rows: Rows, count: int) -> float:
        """Mean loss over the first rows of the validation split, the same at every call."""
        ranks, size = self.ranks, self.recipe.batch.micro_rows
        count = min(count, len(rows))
        # FSDP gathers layers together, so every rank runs as many passes as the others
        passes = math.ceil(count / (size * ranks.world))
        total = tokens = 0.0
        self.network.eval()
        for index in range(passes):
            first = (index * ranks.world + ranks.rank) * size
            wanted = list(range(first, min(first + size, count)))
            batch = self._on_device(batch_of(rows, wanted or [0]))
            with self._precision():
                items = torch.ones((), device=ranks.device)
                loss = self.model(**batch, num_items_in_batch=items).loss
            if wanted:
                total += loss.item()
                tokens += int((rows.lengths[wanted] - 1).sum())
        self.network.train()
        total, tokens = ranks.sum(total, tokens)
        return total / max(1.0, tokens)

    @torch.no_grad()
    def sharpness(self, rows: Rows) -> list[Sharpness | None]:
        """How sharply each site routes on the first validation row; None where it has no choice."""
        batch = self._on_device(batch_of(rows, [0]))
        self.network.eval()
        with torch.compiler.set_stance("force_eager"), self._precision():
            routing = self.model(input_ids=batch["input_ids"], output_routing=True).routing
        self.network.train()
        return sharpness_by_site(routing)

    def learning(self) -> tuple[int, int]:
        """Parameters that learn, and all there are."""
        learn = sum(p.numel() for p in self.model.parameters() if p.requires_grad)
        return learn, sum(p.numel() for p in self.model.parameters())

    def memory_mb(self) -> float:
        """The most memory this process has had: of the GPU, or of the process on a CPU."""
        if self.ranks.device.type == "cuda":
            return torch.cuda.max_memory_allocated() / 1e6
        import resource

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3

    def _seed(self, step: int) -> None:
        """Random numbers of a step follow from seed, step and rank: no state to keep."""
        seed = (self.recipe.run.seed * 1_000_003 + step) * 65_537 + self.ranks.rank
        torch.manual_seed(seed % SEEDS)

    def _precision(self) -> AbstractContextManager[Any]:
        if self.recipe.run.precision == "fp32":
            return nullcontext()
        return torch.autocast(self.ranks.device.type, dtype=torch.bfloat16)

    def _on_device(self, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        return {name: tensor.to(self.ranks.device) for name, tensor in batch.items()}

    def _clip(self) -> float:
        norm: Any = torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.recipe.optim.clip)
        full = norm.full_tensor() if hasattr(norm, "full_tensor") else norm
        return float(full)


def _build_on_meta(recipe: Recipe) -> Any:
    with torch.device("meta"):
        return build_model(recipe)


def _frozen_base(recipe: Recipe, model: Any) -> str | None:
    """The fingerprint of a base that does not learn: a checkpoint is nothing without it."""
    if recipe.start is None or not recipe.start.keeps_base:
        return None
    from dares.adapters import weights_fingerprint

    return weights_fingerprint(model)


def check_shares(recipe: Recipe, ranks: Ranks) -> None:
    """An error if the rows of a step cannot be shared out."""
    rows, micro, world = recipe.batch.rows, recipe.batch.micro_rows, ranks.world
    if rows % world:
        raise ValueError(
            f"batch.rows={rows} cannot be shared by {world} ranks: use a multiple of {world}"
        )
    share = rows // world
    if share > micro and share % micro:
        raise ValueError(
            f"each rank has {share} rows a step, not a multiple of batch.micro_rows={micro}: "
            "change one of them"
        )
