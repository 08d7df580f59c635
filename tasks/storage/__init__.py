"""Where bytes are: locations, listings, S3, hf://, and which errors are transient."""
