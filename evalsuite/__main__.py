"""`python -m evalsuite`."""

from evalsuite.cli import main

main()
