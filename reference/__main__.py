"""`python -m reference`: write every page anew."""

from pathlib import Path

from reference import PAGES

FOLDER = Path(__file__).parent.parent / "docs" / "reference"


def main() -> None:
    """Write the pages."""
    for name, page in PAGES.items():
        (FOLDER / name).write_text(page())


if __name__ == "__main__":
    main()
