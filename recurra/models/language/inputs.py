"""Token encoders: the first layer of a language model, from tokens to vectors."""

from torch import Tensor, nn


class TokenEncoder(nn.Module):
    """The first layer of a language model: tokens (…,) from 0 to `input_size` - 1 → vectors (…, `output_size`)."""

    def __init__(self, input_size: int, output_size: int):
        super().__init__()
        self.input_size, self.output_size = input_size, output_size


class Embedding(TokenEncoder):
    """A learned vector for every token."""

    def __init__(self, tokens: int, width: int):
        super().__init__(tokens, width)
        self.table = nn.Embedding(tokens, width)
        nn.init.normal_(self.table.weight, std=width**-0.5)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.table(tokens)
