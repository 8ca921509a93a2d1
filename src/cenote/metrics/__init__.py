"""Plain records of what happened, and the names they are published under."""
