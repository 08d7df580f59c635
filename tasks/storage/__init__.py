"""The place of bytes: locations, listings, S3, hf://, and which errors are transient."""
