"""A captured model as a program of operators, and one executor that runs it."""
