"""leat.DataLoader: its Python side."""
