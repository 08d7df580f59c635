"""The block: hidden columns, row states, tensors, and how a function is applied to rows."""
