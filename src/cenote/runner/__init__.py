"""Runs the engine's steps on a model: packing, the forward pass, pooling."""
