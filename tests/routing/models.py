"""Small routed models with routers that choose, and rows to run them on."""

import torch

import dares
from tests.models.families import ALL, tiny_model, tokens

EVERY = {
    **ALL,
    "standard": dares.preset("standard"),
    "cumulative": dares.preset("cumulative"),
    "null": dares.preset("delta", null_source=True),
}


def routed(scheme="delta", family="llama", *, std=0.7, seed=3):
    """A converted random model whose scheme has random parameters, so that tokens differ."""
    model = dares.convert(tiny_model(family), EVERY[scheme], allow_drift=True)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.base_model.depth.named_parameters():
            if name != "gain":
                parameter.add_(std * torch.randn(parameter.shape, generator=generator))
    return model.eval()


def rows(count=4, length=24, seed=1):
    return tokens(count, length, seed=seed)


def padded(ids, lengths, *, left=False, width=None):
    """The rows cut to those lengths, and a batch in which padding fills them up again."""
    width = width or max(lengths)
    batch = torch.zeros(len(lengths), width, dtype=torch.long)
    mask = torch.zeros_like(batch)
    cut = [ids[row, :length] for row, length in enumerate(lengths)]
    for row, part in enumerate(cut):
        place = slice(width - len(part), width) if left else slice(0, len(part))
        batch[row, place], mask[row, place] = part, 1
    return cut, {"input_ids": batch, "attention_mask": mask}
