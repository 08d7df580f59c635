"""The reference that follows from the code, and the pages of the documentation, for the site and the terminal."""
