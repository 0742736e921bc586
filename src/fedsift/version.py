"""The one version number: of the package, and of the protocols that sites must share to run a job together."""

VERSION = "0.1.0"
