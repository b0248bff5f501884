"""The built-in allocations. The name of a file is the name of its allocation."""
