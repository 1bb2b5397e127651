"""A recipe: all that a training run is made of, validated at birth, and the model it builds."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from dares.config import SchemeConfig, config_from_dict
from dares.data.documents import pinned
from dares.families import FAMILY_MODULES
from dares.ops.depth_mix import check_backend
from dares.presets import preset
from dares.train.settings import Settings, known_fields, one_of
from dares.train.start import StartSettings

PRECISIONS = ("fp32", "bf16")


@dataclass(frozen=True, kw_only=True)
class ModelShape(Settings):
    """A decoder of a Hugging Face family.

    mlp            the width inside the MLP
    embedding_std  of the embedding as a run begins; none: the family's own, as a rule 0.02. What
                   sublayers add is far larger, and a deep thin model needs long to see its input
    """

    section: ClassVar[str] = "model"

    family: str = "qwen3"
    width: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    mlp: int
    vocabulary: int
    tied: bool = True
    embedding_std: float | None = None

    def check(self) -> None:
        self.above_zero("embedding_std")
        one_of("model.family", self.family, FAMILY_MODULES)
        sizes = ("width", "layers", "heads", "kv_heads", "head_dim", "mlp", "vocabulary")
        self.at_least(1, *sizes)
        if self.heads % self.kv_heads:
            raise ValueError(
                f"model.heads must be a multiple of model.kv_heads, "
                f"got {self.heads} and {self.kv_heads}"
            )
        if self.head_dim % 2:
            raise ValueError(
                f"model.head_dim must be even, for rotary positions, got {self.head_dim}"
            )


@dataclass(frozen=True, kw_only=True)
class DataSettings(Settings):
    """What the model reads.

    inputs      files, folders or Hugging Face datasets (owner/name, or owner/name@revision; a run
                keeps the commit that it began with); none: Python's own standard library
    tokenizer   a name or path; none: a byte-level BPE of `vocabulary` tokens, trained on the data
    row_tokens  tokens a row
    validation  share of the documents that are never trained on
    validation_inputs  text to validate on instead of that share
    limit       documents of a streamed dataset; none: all of them
    """

    section: ClassVar[str] = "data"

    inputs: tuple[str, ...] = ()
    tokenizer: str | None = None
    vocabulary: int = 4096
    row_tokens: int
    validation: float = 0.02
    validation_inputs: tuple[str, ...] = ()
    text_field: str = "text"
    limit: int | None = None

    def check(self) -> None:
        self.at_least(1, "vocabulary", "limit")
        self.at_least(2, "row_tokens")  # a token to read and one to predict
        if not 0 < self.validation < 1:
            raise ValueError(
                f"data.validation must be a share between 0 and 1, got {self.validation!r}"
            )


@dataclass(frozen=True, kw_only=True)
class OptimSettings(Settings):
    """AdamW: a linear warm-up, then a cosine that ends at `final_lr` times lr.

    router_lr  of the queries, gains and gates; none: the same as lr
    clip       largest norm of the gradient
    """

    section: ClassVar[str] = "optim"

    lr: float
    router_lr: float | None = None
    betas: tuple[float, float] = (0.9, 0.95)
    eps: float = 1e-8
    weight_decay: float = 0.1
    clip: float = 1.0
    warmup: int
    final_lr: float = 0.1

    def check(self) -> None:
        self.above_zero("lr", "router_lr", "eps", "clip")
        self.at_least(0, "weight_decay", "warmup")
        if not all(0 <= beta < 1 for beta in self.betas):
            raise ValueError(f"optim.betas must be in [0, 1), got {self.betas!r}")
        if not 0 <= self.final_lr <= 1:
            raise ValueError(
                f"optim.final_lr must be a share of lr between 0 and 1, got {self.final_lr!r}"
            )


@dataclass(frozen=True, kw_only=True)
class BatchSettings(Settings):
    """Rows a step over all ranks, and rows a forward pass on one rank."""

    section: ClassVar[str] = "batch"

    rows: int
    micro_rows: int

    def check(self) -> None:
        self.at_least(1, "rows", "micro_rows")
        if self.rows % self.micro_rows:
            raise ValueError(
                f"batch.rows must be a multiple of batch.micro_rows, "
                f"got {self.rows} and {self.micro_rows}"
            )


@dataclass(frozen=True, kw_only=True)
class RunSettings(Settings):
    """How long, how often, and how it is computed.

    eval_rows      rows of the validation split that are looked at
    keep           checkpoints that stay on disk, the latest
    precision      fp32; bf16: autocast, with float32 weights and optimizer state
    backend        how depth is mixed: "auto", or a name that is taken at its word
    max_bad_steps  steps in a row with a loss or gradient that is not finite before the run stops
    """

    section: ClassVar[str] = "run"

    steps: int
    seed: int = 0
    log_every: int = 10
    eval_every: int = 250
    eval_rows: int = 64
    checkpoint_every: int = 1000
    keep: int = 2
    precision: str = "fp32"
    gradient_checkpointing: bool = False
    compile: bool = False
    deterministic: bool = False
    backend: str = "auto"
    max_bad_steps: int = 5

    def check(self) -> None:
        self.at_least(1, "steps", "log_every", "eval_every", "eval_rows", "checkpoint_every")
        self.at_least(1, "keep", "max_bad_steps")
        self.at_least(0, "seed")
        one_of("run.precision", self.precision, PRECISIONS)
        check_backend(self.backend)


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """A training run, whole; with a `start` it goes on from a pretrained model of that shape."""

    name: str
    about: str
    model: ModelShape
    depth: SchemeConfig
    data: DataSettings
    optim: OptimSettings
    batch: BatchSettings
    run: RunSettings
    start: StartSettings | None = None

    def __post_init__(self) -> None:
        for field in ("name", "about"):
            if not isinstance(getattr(self, field), str) or not getattr(self, field):
                raise ValueError(f"{field} must be text, got {getattr(self, field)!r}")
        for section, kind in {**SECTIONS, "depth": SchemeConfig}.items():
            if not isinstance(getattr(self, section), kind):
                raise ValueError(
                    f"{section} must be a {kind.__name__}, got {getattr(self, section)!r}"
                )
        if not isinstance(self.start, StartSettings | None):
            raise ValueError(f"start must be a StartSettings or None, got {self.start!r}")
        self.depth.check_layers(self.model.layers)
        if self.data.tokenizer is None and self.data.vocabulary > self.model.vocabulary:
            raise ValueError(
                f"data.vocabulary must be no more than model.vocabulary, "
                f"got {self.data.vocabulary} and {self.model.vocabulary}"
            )

    @property
    def tokens_per_step(self) -> int:
        """Tokens that one optimizer step sees, over all ranks."""
        return self.batch.rows * self.data.row_tokens

    def with_inputs(self, inputs: Sequence[str]) -> Recipe:
        """The same run on other text."""
        data = dataclasses.replace(self.data, inputs=tuple(inputs))
        return dataclasses.replace(self, data=data)

    def with_pinned_text(self, begun: Recipe | None) -> Recipe:
        """Datasets by their commits: those of the run that goes on, or the newest."""
        before = begun.data if begun is not None else self.data
        data = dataclasses.replace(
            self.data,
            inputs=pinned(self.data.inputs, before.inputs),
            validation_inputs=pinned(self.data.validation_inputs, before.validation_inputs),
        )
        return dataclasses.replace(self, data=data)

    def with_scheme(self, name: str) -> Recipe:
        """The same run under another preset; a block keeps the recipe's size, if it has one."""
        depth = preset(name)
        block, own = (getattr(config, "block", None) for config in (depth, self.depth))
        if block is not None:
            depth = depth.replace(block=own or min(block, self.model.layers))
        return dataclasses.replace(self, depth=depth)

    def to_dict(self) -> dict[str, Any]:
        """Every setting, as plain JSON values."""
        sections = {name: getattr(self, name).to_dict() for name in SECTIONS}
        start = {} if self.start is None else {"start": self.start.to_dict()}
        return {
            "name": self.name,
            "about": self.about,
            **start,
            "depth": self.depth.to_dict(),
            **sections,
        }

    @classmethod
    def from_dict(cls, data: Any) -> Recipe:
        """Read what `to_dict` wrote; unknown settings are errors, never guesses."""
        fields = known_fields(cls, data, "the recipe")
        fields["depth"] = config_from_dict(fields["depth"])
        for name, section in SECTIONS.items():
            fields[name] = section.from_dict(fields[name])
        if "start" in fields:
            fields["start"] = StartSettings.from_dict(fields["start"])
        return cls(**fields)


SECTIONS: dict[str, type[Settings]] = {
    section.section: section
    for section in (ModelShape, DataSettings, OptimSettings, BatchSettings, RunSettings)
}


def build_config(recipe: Recipe) -> Any:
    """The family's own transformers config, with positions for the recipe's rows."""
    from transformers import CONFIG_MAPPING

    shape = recipe.model
    config_class: Any = CONFIG_MAPPING[shape.family]
    settings = {
        "vocab_size": shape.vocabulary,
        "hidden_size": shape.width,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "max_position_embeddings": recipe.data.row_tokens,
        "tie_word_embeddings": shape.tied,
    }
    # where a family has no such setting, this is what it does
    for name, value, fixed in (
        ("num_key_value_heads", shape.kv_heads, shape.heads),
        ("head_dim", shape.head_dim, shape.width // shape.heads),
        ("intermediate_size", shape.mlp, 4 * shape.width),
    ):
        if hasattr(config_class(), name):
            settings[name] = value
        elif value != fixed:
            raise ValueError(
                f"family {shape.family!r} has no {name} of its own: it would be {fixed}, "
                f"got {value}; use that, or family 'qwen3'"
            )
    return config_class(**settings)


def build_model(recipe: Recipe) -> Any:
    """The model as a run begins: with random weights from torch's random state, or its start's.

    Under `torch.device("meta")` its structure alone.
    """
    if recipe.start is not None:
        from dares.train.pretrained import build_start

        return build_start(recipe, recipe.start)
    from dares.models import from_config

    model: Any = from_config(build_config(recipe), recipe.depth, backend=recipe.run.backend)
    wanted = recipe.model.embedding_std
    if wanted is not None:
        # scaled, not drawn again: all other weights stay as they would have been
        model.get_input_embeddings().weight.data.mul_(wanted / model.config.initializer_range)
    return model
