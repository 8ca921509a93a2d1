"""The parts that models are made of. They know tensors and kernels, no model and no request."""
