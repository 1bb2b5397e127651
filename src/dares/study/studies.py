"""The studies there are: functions from a base recipe to the variants that are compared."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from dares.config import DepthConfig, SchemeConfig, SkipConfig
from dares.presets import preset
from dares.study.shapes import same_parameters
from dares.study.study import Study, Variant
from dares.train.recipe import Recipe
from dares.train.recipes import PAPER_SCHEMES

OTHER_SCHEMES = ("ddl", "hyper", "mhc", "dense")
BLOCK = 4  # layers a block, where the base recipe has none


def paper_table(base: Recipe) -> Study:
    """The paper's table: standard, Block and Full AttnRes, Delta Block, Delta."""
    return Study("paper-table", _about(paper_table), _presets(base, PAPER_SCHEMES))


def all_schemes(base: Recipe) -> Study:
    """The paper's five, Deep Delta Learning, Hyper-Connections, mHC and DenseFormer."""
    schemes = (*PAPER_SCHEMES, *OTHER_SCHEMES)
    return Study("all-schemes", _about(all_schemes), _presets(base, schemes))


def grid(base: Recipe) -> Study:
    """What is remembered against how it joins, router and final read fixed."""
    cells = [
        _under(base, f"{sources}-{merge}", _routed(base, sources, merge))
        for sources in ("cumulative", "sublayer", "block")
        for merge in ("replace", "add")
    ]
    return Study("grid", _about(grid), (_standard(base), *cells))


def controls(base: Recipe) -> Study:
    """Delta's router and merge with other sources, and what needs no router at all."""
    delta = preset("delta")
    sources = [
        _under(base, name, delta.replace(sources=name))
        for name in ("cumulative", "normed", "projected")
    ]
    variants = (
        _standard(base),
        _under(base, "delta", delta),
        *sources,
        # its input is larger than the stream's, and only the eps of a norm can tell
        _under(base, "delta-unscaled", delta.replace(read_scale="none")),
        _under(base, "skip", SkipConfig()),
    )
    return Study("controls", _about(controls), variants)


def block_size(base: Recipe) -> Study:
    """Delta Block with 1, 2, 4, ... and all layers a block."""
    layers = base.model.layers
    sizes = [2**power for power in range(layers.bit_length()) if 2**power < layers] + [layers]
    blocks = [_under(base, f"block-{n}", preset("delta_block", block=n)) for n in sizes]
    return Study("block-size", _about(block_size), (_standard(base), *blocks))


def init(base: Recipe) -> Study:
    """How Delta Block starts: queries, the running delta, a null source, a gate."""
    block = _routed(base, "block", "add")
    variants = (
        _standard(base),
        _under(base, "delta_block", block),
        _under(base, "normal-queries", block.replace(query_std=0.02)),
        _under(base, "no-running", block.replace(running=False)),
        _under(base, "normal-no-running", block.replace(query_std=0.02, running=False)),
        _under(base, "null", block.replace(null_source=True)),
        _under(base, "gate", block.replace(merge="gate")),
    )
    return Study("init", _about(init), variants)


def final(base: Recipe) -> Study:
    """What the final norm reads, with tied and with untied embeddings."""
    schemes = {
        ("standard", "stream"): preset("standard"),
        ("standard", "routed"): DepthConfig(sources="sublayer", merge="none", final="routed"),
        ("delta_block", "stream"): _routed(base, "block", "add"),
        ("delta_block", "routed"): _routed(base, "block", "add").replace(final="routed"),
        ("delta", "stream"): preset("delta"),
        ("delta", "routed"): preset("delta", final="routed"),
    }
    variants = []
    for tying in ("tied", "untied"):
        shaped = replace(base, model=replace(base.model, tied=tying == "tied"))
        variants += [
            _under(shaped, f"{scheme}-{read}-{tying}", depth, f"standard-stream-{tying}")
            for (scheme, read), depth in schemes.items()
        ]
    return Study("final", _about(final), tuple(variants))


def depth(base: Recipe) -> Study:
    """The same number of parameters in 8, 16 and 32 layers."""
    variants = []
    for layers in (8, 16, 32):
        shaped = same_parameters(base, layers)
        variants += [
            replace(variant, name=f"{variant.name}-{layers}", baseline=f"standard-{layers}")
            for variant in _presets(shaped, ("standard", "delta_block", "delta"))
        ]
    return Study("depth", _about(depth), tuple(variants))


STUDIES: dict[str, Callable[[Recipe], Study]] = {
    "paper-table": paper_table,
    "all-schemes": all_schemes,
    "grid": grid,
    "controls": controls,
    "block-size": block_size,
    "init": init,
    "final": final,
    "depth": depth,
}


def _about(study: Callable[[Recipe], Study]) -> str:
    return (study.__doc__ or "").splitlines()[0]


def _under(base: Recipe, name: str, scheme: SchemeConfig, baseline: str = "standard") -> Variant:
    return Variant(name, replace(base, name=name, depth=scheme), baseline)


def _standard(base: Recipe) -> Variant:
    return _under(base, "standard", preset("standard"))


def _presets(base: Recipe, names: Sequence[str]) -> tuple[Variant, ...]:
    """Presets with the recipe's blocks."""
    return tuple(_under(base, name, base.with_scheme(name).depth) for name in names)


def _routed(base: Recipe, sources: str, merge: str) -> SchemeConfig:
    """Routed reads, the stream for the final norm; blocks of the recipe's size."""
    own = getattr(base.depth, "block", None)
    block = (own or min(BLOCK, base.model.layers)) if sources == "block" else None
    return DepthConfig(sources=sources, merge=merge, block=block)
