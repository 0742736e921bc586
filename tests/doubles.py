"""The transport doubles that ship with the package, under the name that the tests use."""

from fedsift.testing.doubles import Faulty, Recording, Serial

__all__ = ["Faulty", "Recording", "Serial"]
