"""What a reservoir warns of; what it cannot take is an InputError."""


class EchoStateWarning(UserWarning):
    """For the given input the reservoir does not forget where it started."""


class SeriesWarning(UserWarning):
    """A series is usable, but hardly what was meant."""
