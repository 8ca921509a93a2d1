"""Finds a model's folder and fills a model with its weights. It knows no engine."""
