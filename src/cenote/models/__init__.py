"""One file for each model family: token ids in, hidden states out. Models know no pooling."""
