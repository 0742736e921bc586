"""Tables, parties, messages and the federation: what every method stands on."""
