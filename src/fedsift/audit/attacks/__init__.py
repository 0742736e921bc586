"""The attacks, one file a family. ``fedsift.audit.load_attacks`` imports them all; none needs torch to be imported."""
