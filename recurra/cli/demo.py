"""`recurra demo`: cells compete on real speech."""


def demo() -> None:
    """Compare a dozen cells on Japanese Vowels, which is inside the package.

    The same as [bold]recurra compare japanese_vowels[/].
    """
    from recurra.cli.compare import run

    run("japanese_vowels", {}, {})
