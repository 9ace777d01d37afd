"""Online learning: algorithms that carry what they need forward in time and never look back, one file each."""
