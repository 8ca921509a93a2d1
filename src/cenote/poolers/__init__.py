"""From hidden states to results: methods and heads. They know no model and no request."""
