"""`overnight chaos`: a sample of one's own data under kills and pauses, beside an undisturbed run."""
