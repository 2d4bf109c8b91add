"""`python -m poolgrad.cli`: the command line where no script is installed."""

from . import main

if __name__ == "__main__":
    main()
