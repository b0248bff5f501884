"""One module per suffix of a data file. The name of a module is the suffix that it reads."""
