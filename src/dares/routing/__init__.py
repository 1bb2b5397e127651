"""What the routers do: measured, and shown."""
