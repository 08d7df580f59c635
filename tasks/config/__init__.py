"""What a job file may say in general: settings, plugins, user code, extras, retries."""
