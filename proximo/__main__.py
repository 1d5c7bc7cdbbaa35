"""`python -m proximo` is the command proximo."""

from proximo.cli.main import run

if __name__ == "__main__":
    run()
