"""Text in, packed tokens out: `prepare.prepare`, then `rows.PackedData` and `loader.Loader`.

The way of a text: `documents` (what is read, from `files` and `hub`) -> `split` (train or
validation) -> `tokenizer` -> `packing` (rows of equal length on disk) -> `rows` -> `loader`.
"""
