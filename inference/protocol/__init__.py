"""Wire types: msgspec structs, one file per boundary. Imports neither torch nor Django."""
