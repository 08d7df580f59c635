"""What the Hugging Face models share: checkpoints, tokenization, image inputs, pooling."""
