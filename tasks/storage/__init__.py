"""Access to stores: locations, listings, S3, `hf://`, and which errors are transient."""
