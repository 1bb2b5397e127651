"""Fine-tune a routed model with transformers' Trainer, its routers at a rate of their own.

python examples/trainer.py --model MODEL --data stories.txt --out tuned --steps 200
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from torch.optim import AdamW
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    DataCollatorForLanguageModeling,
    PreTrainedModel,
    Trainer,
    TrainingArguments,
)

import dares


def load(name: str) -> PreTrainedModel:
    """A routed model as it is; a plain one converted, its logits unchanged."""
    model = AutoModelForCausalLM.from_pretrained(name, dtype=torch.float32)  # to learn in
    if hasattr(model.config, "depth"):
        return model
    block = min(4, model.config.num_hidden_layers)
    return dares.convert(model, dares.preset("delta_block", block=block))


def optimizer_of(model: PreTrainedModel, lr: float, router_lr: float) -> AdamW:
    """Two groups: the routers, faster and without decay, and all the others."""
    routers = list(model.base_model.depth.parameters())
    known = {id(router) for router in routers}
    others = [parameter for parameter in model.parameters() if id(parameter) not in known]
    groups = [
        {"params": others, "lr": lr, "weight_decay": 0.1},
        {"params": routers, "lr": router_lr, "weight_decay": 0.0},
    ]
    return AdamW(groups, betas=(0.9, 0.95))


def main() -> None:
    """Read the arguments, train, save."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", required=True, help="a folder or a hub name")
    parser.add_argument("--data", required=True, type=Path, help="text, a paragraph an example")
    parser.add_argument("--out", required=True)
    parser.add_argument("--steps", type=int, default=200)
    options = parser.parse_args()

    model = load(options.model)
    tokenizer = AutoTokenizer.from_pretrained(options.model)
    tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
    paragraphs = [text for text in options.data.read_text().split("\n\n") if text.strip()]
    longest = min(256, model.config.max_position_embeddings)
    examples = [tokenizer(text, truncation=True, max_length=longest) for text in paragraphs]
    trainer = Trainer(
        model=model,
        args=TrainingArguments(
            output_dir=options.out,
            max_steps=options.steps,
            per_device_train_batch_size=8,
            lr_scheduler_type="cosine",
            logging_steps=10,
            save_strategy="no",
            report_to="none",
        ),
        train_dataset=examples,
        data_collator=DataCollatorForLanguageModeling(tokenizer, mlm=False),
        optimizers=(optimizer_of(model, lr=5e-5, router_lr=5e-3), None),
    )
    trainer.train()
    trainer.save_model()
    tokenizer.save_pretrained(options.out)


if __name__ == "__main__":
    main()
