"""What `leat bench` runs in the user's process."""
