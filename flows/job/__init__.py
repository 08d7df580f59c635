"""What a job file says: its model, how it is loaded, and what its errors say."""
