"""The files that `--data` reads.

To read another kind of file, add one module to `suffixes/`. Its name is the suffix; it registers
one subclass of `DataFile`:

    @data_file("csv")
    class CsvFile(DataFile): ...
"""
