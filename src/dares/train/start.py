"""What a fine-tuning run starts from, and which part of it learns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from dares.train.settings import Settings, one_of

FROZEN = ("none", "base", "routers")


@dataclass(frozen=True, kw_only=True)
class StartSettings(Settings):
    """A pretrained model.

    checkpoint    a folder or a hub name
    freeze        none: all learns; base: the routers alone; routers: all but them
    lora_rank     the base learns through matrices of this rank (PEFT), itself frozen; none: no LoRA
    lora_alpha    their sum counts alpha / rank times; none: twice the rank
    lora_targets  names of linear layers that have them; none: every one in the decoder's layers
    """

    section: ClassVar[str] = "start"

    checkpoint: str
    freeze: str = "none"
    lora_rank: int | None = None
    lora_alpha: int | None = None
    lora_targets: tuple[str, ...] = ()

    def check(self) -> None:
        one_of("start.freeze", self.freeze, FROZEN)
        self.at_least(1, "lora_rank", "lora_alpha")
        if self.lora_rank is None and (self.lora_alpha is not None or self.lora_targets):
            raise ValueError(
                "start.lora_alpha and start.lora_targets need a start.lora_rank: set it"
            )
        if self.lora_rank is not None and self.freeze == "base":
            raise ValueError(
                "LoRA lets the base learn and freeze=base does not: leave one of them out "
                "(with LoRA the base's own weights are frozen in any case)"
            )

    @property
    def keeps_base(self) -> bool:
        """Does the base stay as it was, so that what was learned can be kept beside it?"""
        return self.freeze == "base" or self.lora_rank is not None
