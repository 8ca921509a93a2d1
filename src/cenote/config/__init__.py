"""Settings of the engine and the server, and what model folders say. It knows no torch."""
