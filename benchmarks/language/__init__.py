"""Language models: `preserve` beside other training-free methods, and what comes after."""
