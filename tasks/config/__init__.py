"""The general parts of a job file: settings, plugins, user code, extras, retries."""
