"""Features of sequences from banks of random recurrent units."""
