"""The hot operations, each in a folder of its own. They import torch alone."""
