"""Recognises text that is a number."""


def is_number(text: str) -> bool:
    """Whether `float(text)` works."""
    try:
        float(text)
    except ValueError:
        return False
    return True
