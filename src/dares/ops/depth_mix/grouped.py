"""Linear memory, few reads, plain torch: any device.

Queries are parameters, so a source can be scored for all later routers when it appears. Routers are
read in groups: when a group begins, the sources finished by then (the old ones) are summed for all
its routers in one pass; each site then adds the few sources that came since (the young ones). With
e = exp(z - max) this is exact, the two phases of an online softmax:

    sum_i (a_i - 1/n) u_i = w * sum_old (p_i - 1/n_old) u_i + b * sum_old u_i
                            + sum_young (a_j - 1/n) u_j

    p = softmax over the old alone,  w = sum_old a_i,  b = w/n_old - 1/n

and every coefficient is exactly zero at uniform weights. (Not centred: b = w/n_old, and a_j.)
"""

from __future__ import annotations

import torch

from dares.ops.depth_mix.forward import ForwardMixer
from dares.ops.depth_mix.functional import FunctionalMixer
from dares.ops.depth_mix.gathered import GatheredMixer
from dares.ops.depth_mix.interface import DepthMixer, MixPlan


class GroupedMixer(DepthMixer):
    """Each source is scored once, kept once, and read once a group and once a younger site.

    In eager mode the gradients are gathered by hand; under torch.compile, or where the weights are
    asked for (with a gradient of their own), the same sums are left to autograd; without gradients
    there is nothing to gather.
    """

    def __init__(self, plan: MixPlan) -> None:
        super().__init__(plan)
        self._gathered, self._functional = GatheredMixer(plan), FunctionalMixer(plan)
        self._forward = ForwardMixer(plan)

    def for_pass(self, *, record: bool) -> DepthMixer:
        if torch.compiler.is_compiling() or (record and torch.is_grad_enabled()):
            return self._functional
        return self._gathered if torch.is_grad_enabled() else self._forward
