"""The page beside a converted model: what it is, what was measured, how to load it."""

from __future__ import annotations

import json

from dares.config import SchemeConfig
from dares.pretrained.identity import Identity
from dares.version import VERSION

CARD = """---
library_name: transformers
pipeline_tag: text-generation
tags: [dares, {scheme}]{base_model}
---
# {name}

{source}, converted by [dares](https://arxiv.org/abs/2605.18855) {version}: its residual
connections can learn which earlier layers to read. {added:,} parameters were added to
{base:,} ({share:.3g} %). The base model's licence and terms apply.

{measured}

```python
{load}
```

Made by

```sh
{command}
```

The residual scheme, as `config.json` keeps it:

```json
{depth}
```
"""

IDENTITY = """| measured on {tokens:,} tokens of text | |
|---|---|
| largest difference of a logit | {difference:.3g} |
| relative to the largest logit | {relative_difference:.3g} |
| loss before, after | {loss_before:.6f}, {loss_after:.6f} |
| mean KL divergence | {kl:.3g} |"""

WITH_DARES = """import dares  # pip install dares; registers the routed families
from transformers import AutoModelForCausalLM, AutoTokenizer

model = AutoModelForCausalLM.from_pretrained("PATH")
tokenizer = AutoTokenizer.from_pretrained("PATH")"""

WITH_CODE = """from transformers import AutoModelForCausalLM, AutoTokenizer

# with dares installed and imported, trust_remote_code can be left out
model = AutoModelForCausalLM.from_pretrained("PATH", trust_remote_code=True)
tokenizer = AutoTokenizer.from_pretrained("PATH", trust_remote_code=True)"""


def write_card(
    *,
    name: str,
    source: str,
    depth: SchemeConfig,
    added: int,
    base: int,
    measured: Identity | float,
    command: str,
    with_code: bool,
) -> str:
    """The card's text; measured is a loss where there was no model to compare with."""
    if isinstance(measured, Identity):
        figures = IDENTITY.format(**vars(measured))
    else:
        figures = f"The routers are the authors' own, trained; its loss on a text: {measured:.6f}."
    return CARD.format(
        name=name,
        source=source,
        # a name on the Hub, which shows the two side by side
        base_model=f"\nbase_model: {source}" if "/" in source else "",
        scheme=depth.scheme,
        version=VERSION,
        added=added,
        base=base,
        share=100 * added / base,
        measured=figures,
        load=WITH_CODE if with_code else WITH_DARES,
        command=command,
        depth=json.dumps(depth.to_dict(), indent=1),
    )
