"""`dares demo`: conversion, identity, 50 steps of training, and the routing as a table."""

from __future__ import annotations

import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM

import dares

STEPS, BATCH, LENGTH = 50, 8, 128


def run(console: Console) -> None:
    """A byte-level model of the standard library's own source text: nothing to download."""
    torch.manual_seed(0)
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=256,
            hidden_size=96,
            intermediate_size=256,
            num_hidden_layers=6,
            num_attention_heads=4,
            max_position_embeddings=LENGTH,
        )
    )
    routed = dares.convert(model, dares.preset("delta_block", block=2))
    report = routed.conversion
    console.print(
        f"[bold]1. Convert[/bold] a Llama of {model.num_parameters():,} parameters to Delta Block "
        f"(2 layers a block): {report.added_parameters:,} parameters added, "
        f"largest logit difference on {report.probe_tokens} tokens: {report.difference:g}"
    )
    console.print(f"[bold]2. Train[/bold] for {STEPS} steps on the standard library's source")
    first, last = _train(routed, console)
    console.print(f"   loss {first:.3f} -> {last:.3f} nats a byte")
    console.print("[bold]3. Look[/bold] at what each sublayer reads beside the stream")
    console.print(_routing_table(routed, next(_batches(seed=1))))
    console.print(
        "A model this small, trained for seconds, shows that the machinery works. "
        "It is no evidence for or against the method."
    )


def _batches(seed: int) -> Iterator[Tensor]:
    files = sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))
    text = b"".join(path.read_bytes() for path in files[:80])
    data = torch.frombuffer(bytearray(text), dtype=torch.uint8).long()
    generator = torch.Generator().manual_seed(seed)
    while True:
        starts = torch.randint(len(data) - LENGTH, (BATCH,), generator=generator)
        yield torch.stack([data[start : start + LENGTH] for start in starts])


def _train(model: Any, console: Console) -> tuple[float, float]:
    routers = [p for name, p in model.named_parameters() if ".depth." in name]
    others = [p for name, p in model.named_parameters() if ".depth." not in name]
    optimizer = torch.optim.AdamW(
        [
            {"params": routers, "lr": 2e-2, "weight_decay": 0.0},
            {"params": others, "lr": 3e-3, "weight_decay": 0.1},
        ]
    )
    model.train()
    losses = []
    batches = _batches(seed=0)
    for _ in track(range(STEPS), description="   training", console=console):
        batch = next(batches)
        loss = model(input_ids=batch, labels=batch).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses[0], sum(losses[-5:]) / 5


@torch.no_grad()
def _routing_table(model: Any, batch: Tensor) -> Table:
    routing = model.eval()(input_ids=batch, output_routing=True).routing
    scheme = model.base_model.depth
    labels = max((scheme.source_labels(site) for site in range(scheme.sites)), key=len)
    table = Table(title="Mean routing weight, by site and source", pad_edge=False)
    table.add_column("site")
    for label in labels:
        table.add_column(label, justify="right")
    for site, weights in enumerate(routing):
        name = f"layer {site // 2} {'mlp' if site % 2 else 'attention'}"
        if weights is None:
            table.add_row(name, *["-"] * len(labels))
            continue
        mean = dict(zip(scheme.source_labels(site), weights.mean((0, 1)).tolist(), strict=True))
        top = max(mean, key=lambda label: mean[label])
        table.add_row(
            name,
            *(_cell(mean.get(label), strong=label == top) for label in labels),
        )
    return table


def _cell(value: float | None, *, strong: bool) -> str:
    if value is None:
        return ""
    return f"[bold]{value:.2f}[/bold]" if strong else f"{value:.2f}"
