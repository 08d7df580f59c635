"""`overnight doctor`: what is missing for tonight's run."""
