"""The three ways to score a query against documents: one file each."""
