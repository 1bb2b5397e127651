"""Where commands print."""

from __future__ import annotations

from rich.console import Console

console = Console()
