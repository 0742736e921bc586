"""What pyproject.toml cannot say: the arithmetic kernel is compiled where a C compiler is found, else left out."""

from setuptools import Extension, setup

setup(
    ext_modules=[
        Extension(
            "fedsift.crypto._kernel",
            ["src/fedsift/crypto/_montgomery.c", "src/fedsift/crypto/_ristretto.c", "src/fedsift/crypto/_ring.c"],
            extra_compile_args=["-O3", "-fvisibility=hidden"],
            optional=True,
        )
    ]
)
