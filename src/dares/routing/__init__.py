"""What the routers do: measured, probed, and shown.

`record(model, batches)` gives the statistics of a text, `probes` ask what the model's loss owes to
them, `plots` draw both. `metrics` are pure functions of weights.
"""

from dares.routing.record import Recording, record

__all__ = ["Recording", "record"]
