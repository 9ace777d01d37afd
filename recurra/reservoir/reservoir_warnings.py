"""What a reservoir warns of; what it cannot take is an InputError."""


class EchoStateWarning(UserWarning):
    """For the given input the reservoir does not forget where it started.

    **Example**

        >>> import warnings
        >>> network = rc.EchoStateNetwork(units=30, spectral_radius=3.0, bias=0.0, input_scaling=0.01, random_state=0)
        >>> with warnings.catch_warnings(record=True) as caught:
        ...     warnings.simplefilter("always")
        ...     _ = network.fit(0.1 * torch.randn(300, 1).numpy())
        >>> [each.category.__name__ for each in caught]
        ['EchoStateWarning']
    """


class SeriesWarning(UserWarning):
    """A series is usable, but hardly what was meant.

    **Example**

        >>> import warnings, numpy as np
        >>> y = np.sin(np.arange(300) / 5)[:, None]
        >>> with warnings.catch_warnings(record=True) as caught:
        ...     warnings.simplefilter("always")
        ...     _ = rc.EchoStateNetwork(units=30, random_state=0).fit(np.ones((300, 1)), y)
        >>> print(caught[0].message)
        X: constant (1), so it does not drive the reservoir
    """
