"""How residuals flow: one family a file, one interface. Torch alone is needed here."""

from __future__ import annotations

from dares.config import SchemeConfig
from dares.schemes.base import Decision, DepthState, ResidualScheme, Watcher
from dares.schemes.ddl import DdlScheme
from dares.schemes.dense import DenseScheme
from dares.schemes.hyper import HyperScheme
from dares.schemes.mhc import MhcScheme
from dares.schemes.routed import RoutedScheme
from dares.schemes.skip import SkipScheme
from dares.schemes.standard import StandardScheme

SCHEMES: dict[str, type[ResidualScheme]] = {
    "standard": StandardScheme,
    "routed": RoutedScheme,
    "ddl": DdlScheme,
    "hyper": HyperScheme,
    "mhc": MhcScheme,
    "dense": DenseScheme,
    "skip": SkipScheme,
}


def build_scheme(
    config: SchemeConfig,
    *,
    width: int,
    sites: int,
    sites_per_layer: int = 2,
    parallel: bool = False,
    backend: str = "auto",
) -> ResidualScheme:
    """The module that carries a config out in a model of that shape.

    width            of the residual stream
    sites            sublayers in all (an attention and an MLP are two)
    sites_per_layer  how many of them make a layer, which `block` counts in
    parallel         the sites of a layer all read before any of them writes
    backend          how depth is mixed: "auto", or a name that is taken at its word
    """
    if not isinstance(config, SchemeConfig):
        raise ValueError(
            f"config must be a scheme config such as dares.preset('delta'), got {config!r}"
        )
    return SCHEMES[config.scheme](
        config,
        width=width,
        sites=sites,
        sites_per_layer=sites_per_layer,
        parallel=parallel,
        backend=backend,
    )


__all__ = [
    "SCHEMES",
    "DdlScheme",
    "Decision",
    "DenseScheme",
    "DepthState",
    "HyperScheme",
    "MhcScheme",
    "ResidualScheme",
    "RoutedScheme",
    "SkipScheme",
    "StandardScheme",
    "Watcher",
    "build_scheme",
]
