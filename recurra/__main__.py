"""`python -m recurra` is the command `recurra`."""

from recurra.cli import main

if __name__ == "__main__":
    main()
