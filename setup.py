"""What pyproject.toml cannot say: the arithmetic kernel is compiled where a C compiler is found, else left out."""

from setuptools import Extension, setup

setup(
    ext_modules=[
        Extension(
            "fedsift.secure._kernel",
            ["src/fedsift/secure/_montgomery.c", "src/fedsift/secure/_ristretto.c"],
            extra_compile_args=["-O3", "-fvisibility=hidden"],
            optional=True,
        )
    ]
)
