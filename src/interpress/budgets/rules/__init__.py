"""The built-in budgets. The name of a file is the name of its budget."""
