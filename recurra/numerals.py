"""Text that may stand for a number."""


def is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
