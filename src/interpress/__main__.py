"""``python -m interpress``: the command line."""

from interpress.cli.app import run

if __name__ == "__main__":
    run()
