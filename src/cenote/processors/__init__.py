"""Text to engine requests, and outputs to results. They know no HTTP and no model code."""
