"""The Hugging Face families there are: a table that can be read without transformers."""

# transformers' model_type -> transformers' module of it, and the module of dares.models
FAMILY_MODULES = {
    "gemma3_text": "gemma3",
    "gpt2": "gpt2",
    "gpt_neox": "gpt_neox",
    "llama": "llama",
    "mistral": "mistral",
    "olmo2": "olmo2",
    "qwen2": "qwen2",
    "qwen3": "qwen3",
}
