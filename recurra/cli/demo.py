"""`recurra demo`: compare cells on the built-in speech data."""


def demo() -> None:
    """Compare twelve cells on the built-in Japanese Vowels data.

    Same as [bold]recurra compare japanese_vowels[/].
    """
    from recurra.cli.compare import run

    run("japanese_vowels", {}, {})
