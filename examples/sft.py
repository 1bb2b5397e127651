"""Fine-tune the routers of a model, and nothing else, with trl's SFTTrainer.

The result is a file of some kilobytes, loaded onto the untouched model with `dares.load_routers`.

    python examples/sft.py --model MODEL --data pairs.jsonl --out tuned --steps 200

A line of the data is {"prompt": ..., "completion": ...}; the loss is of the completions.
"""

from __future__ import annotations

import argparse

import torch
from datasets import load_dataset
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import SFTConfig, SFTTrainer

import dares
from dares.adapters import freeze_base


def main() -> None:
    """Read the arguments, train, save."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", required=True, help="a folder or a hub name, not yet routed")
    parser.add_argument("--data", required=True, help="a .jsonl of prompts and completions")
    parser.add_argument("--out", required=True)
    parser.add_argument("--steps", type=int, default=200)
    options = parser.parse_args()

    base = AutoModelForCausalLM.from_pretrained(options.model, dtype=torch.float32)
    block = min(4, base.config.num_hidden_layers)
    model = freeze_base(dares.convert(base, dares.preset("delta_block", block=block)))
    tokenizer = AutoTokenizer.from_pretrained(options.model)
    tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
    trainer = SFTTrainer(
        model=model,
        args=SFTConfig(
            output_dir=options.out,
            max_steps=options.steps,
            per_device_train_batch_size=8,
            learning_rate=5e-3,  # only routers learn, and this is theirs
            lr_scheduler_type="cosine",
            max_length=min(256, base.config.max_position_embeddings),
            bf16=torch.cuda.is_available(),  # trl would ask for it on a CPU too
            logging_steps=10,
            save_strategy="no",
            report_to="none",
        ),
        train_dataset=load_dataset("json", data_files=options.data, split="train"),
        processing_class=tokenizer,
    )
    trainer.train()
    dares.save_routers(trainer.accelerator.unwrap_model(trainer.model), options.out)


if __name__ == "__main__":
    main()
