"""A cell's equations as Unicode text: fₜ = σ(W_f hₜ₋₁ + U_f xₜ + b_f)."""

from recurra.inspect.latex_parser import Node, equations

SUBSCRIPTS: dict[str, str] = dict(
    zip("0123456789+−-()aehijklmnoprstuvx", "₀₁₂₃₄₅₆₇₈₉₊₋₋₍₎ₐₑₕᵢⱼₖₗₘₙₒₚᵣₛₜᵤᵥₓ", strict=True)
)
SUPERSCRIPTS: dict[str, str] = dict(zip("0123456789+−-()Tin⊤", "⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁻⁽⁾ᵀⁱⁿᵀ", strict=True))
SPACED_SIGNS = frozenset("+−=⊙≤≥≠∧∨×·/")  # signs with a space on both sides


def plain_equations(latex: str) -> list[str]:
    """The lines of a LaTeX `aligned` block as text, aligned at their equals signs."""
    pairs = [(_text(left), _text(right)) for left, right in equations(latex)]
    width = max(len(left) for left, _ in pairs)
    return [f"{left:>{width}} = {right}" for left, right in pairs]


def _text(node: Node) -> str:
    match node.kind:
        case "row":
            return _row(node.parts)
        case "scripts":
            return (
                _text(node.parts[0])
                + _script(node.parts[1], SUBSCRIPTS, "_")
                + _script(node.parts[2], SUPERSCRIPTS, "^")
            )
        case "frac":
            return f"{_grouped(node.parts[0])}/{_grouped(node.parts[1])}"
        case "sqrt":
            return f"√{_grouped(node.parts[0])}"
        case "over":
            return f"conj({_text(node.parts[0])})"
        case "fence":
            return node.text[:1] + _text(node.parts[0]) + node.text[1:]
        case "space":
            return " "
    return node.text


def _row(parts: list[Node]) -> str:
    text = ""
    for before, part in zip([None, *parts], parts, strict=False):
        piece = _text(part)
        if part.kind == "sign" and piece in SPACED_SIGNS:
            is_unary = not text.strip() or text.rstrip().endswith((",", "(", "["))
            text = text.rstrip(" ") + " " + piece if is_unary else f"{text.rstrip()} {piece} "
        elif part.kind == "sign" and piece in ",;":
            text += f"{piece} "
        elif before is not None and _needs_space(before, part) and not text.endswith(" "):
            text += f" {piece}"
        else:
            text += piece
    return " ".join(text.split())


def _needs_space(before: Node, after: Node) -> bool:
    """Whether neighbours form a product (with a space) rather than a function and its argument."""
    if before.kind == "sign" or after.kind == "sign":
        return False
    return not (after.kind == "fence" and (before.upright or _is_function(before)))


def _is_function(node: Node) -> bool:
    return node.kind == "word" and node.text in "σφψ" and bool(node.text)


def _script(node: Node, letters: dict[str, str], mark: str) -> str:
    text = _text(node).replace(" ", "")
    if not text:
        return ""
    if all(letter in letters for letter in text.replace(",", "")):
        return "".join(letters[letter] for letter in text.replace(",", ""))
    plain = len(text) == 1 or (text.isascii() and text.isalnum())
    return f"{mark}{text}" if plain else f"{mark}({text})"


def _grouped(node: Node) -> str:
    text = _text(node)
    return text if text.replace(".", "").isalnum() or node.kind in ("fence", "scripts") else f"({text})"
