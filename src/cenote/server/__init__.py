"""The HTTP side: routes, schemas, errors. Nothing below knows HTTP."""
