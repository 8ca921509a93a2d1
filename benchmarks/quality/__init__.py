"""Quality of real weights on labelled texts: ours beside the reference library's, to 3 decimals."""
