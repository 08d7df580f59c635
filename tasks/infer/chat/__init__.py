"""Chat models: requests, rates, structured output, and local servers."""
