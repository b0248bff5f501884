"""Run `python -m benchmarks.preserve`."""

from benchmarks.preserve.command import main

if __name__ == "__main__":
    main()
