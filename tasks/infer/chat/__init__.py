"""Chat models: requests, rates, structured output, and servers of our own."""
