"""Text from a model, shown as it is made."""

from __future__ import annotations

import torch

import dares  # noqa: F401, makes routed models known to transformers
from dares.pretrained.find import find_folder
from dares.pretrained.loading import load_model, load_tokenizer


def generate(
    name: str,
    prompt: str,
    *,
    max_tokens: int,
    temperature: float = 0.0,
    top_p: float | None = None,
    seed: int = 0,
) -> None:
    """Print the prompt and what the model of a name goes on with, until its end of text.

    temperature 0 is greedy. What the model's own generation config says of drawing is not used,
    so that two models are asked in the same way.
    """
    from transformers import GenerationConfig, TextStreamer

    if not prompt.strip():
        raise ValueError(f"the prompt is empty, got {prompt!r}: give the model a text to continue")
    if top_p is not None and not 0 < top_p <= 1:
        raise ValueError(f"--top-p must be above 0 and at most 1, got {top_p}")
    if top_p is not None and temperature == 0:
        raise ValueError(f"--top-p {top_p} needs --temperature above 0: at 0 nothing is drawn")
    folder = find_folder(name)
    model = load_model(folder)
    tokenizer = load_tokenizer(folder, model.config.vocab_size)
    inputs = tokenizer(prompt, return_tensors="pt")
    used = inputs["input_ids"].shape[1]
    context = getattr(model.config, "max_position_embeddings", None)
    if context is not None and used + max_tokens > context:
        raise ValueError(
            f"the prompt's {used} tokens and {max_tokens} new ones do not fit the model's context "
            f"of {context}: shorten the prompt or lower --max-tokens"
        )
    own = model.generation_config
    # in the place of the model's own, which would fill in whatever is left open here
    model.generation_config = GenerationConfig(
        max_new_tokens=max_tokens,
        do_sample=temperature > 0,
        temperature=temperature or None,
        top_p=top_p,
        top_k=0 if temperature > 0 else None,
        bos_token_id=own.bos_token_id,
        eos_token_id=own.eos_token_id if own.eos_token_id is not None else tokenizer.eos_token_id,
        pad_token_id=own.pad_token_id if own.pad_token_id is not None else tokenizer.eos_token_id,
    )
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(seed)
    with torch.inference_mode():
        model.to(device).generate(
            **inputs.to(device),
            streamer=TextStreamer(tokenizer, skip_special_tokens=True),
        )
