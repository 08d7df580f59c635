"""The common part of the Hugging Face models: checkpoints, tokenization, image inputs, pooling."""
