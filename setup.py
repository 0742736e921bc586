"""What pyproject.toml cannot say: the arithmetic kernel is compiled where a C compiler is found, else left out."""

from setuptools import Extension, setup

setup(
    ext_modules=[
        Extension(
            "fedsift.crypto._kernel",
            [
                f"src/fedsift/crypto/_{name}.c"
                for name in ("montgomery", "ristretto", "ristretto_portable", "sha512", "ring", "avx2", "portable")
            ],
            depends=["src/fedsift/crypto/_ristretto.h"],
            extra_compile_args=["-O3", "-fvisibility=hidden"],
            optional=True,
        )
    ]
)
