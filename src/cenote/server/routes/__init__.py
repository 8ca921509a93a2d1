"""One file for each family of routes; each validates, calls a processor and answers."""
