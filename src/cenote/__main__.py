"""`python -m cenote` is the same as the command `cenote`."""

from cenote.cli.main import main

if __name__ == "__main__":
    main()
