"""Chat models: prompts, answers, structured output, and local servers."""
