"""The secrets of a site, in one folder that nobody else can read: a signing key, a draw secret, a journal key.

signing   The other sites know this one by it (``core/identity.py``). Lost: they pin a new fingerprint. Stolen: rotate
          it and tell them at once, for the thief can take part as this site.
draws     Folds, splits, first weights come from it (``core/identity.py``). Lost: earlier runs cannot be repeated.
          Stolen: the thief can recompute them, as if they had been announced.
journal   Ids in the journal are hashed under it. Lost: earlier releases cannot be compared with later ones. Stolen
          together with the journal: ids can be found by guessing.

The folder has the mode 0700 and each file 0600; a looser one is refused, because whoever can read the files is the
site. A folder that lacks one of the three is refused too: a journal key made anew in silence would forget what was
released before. ``rotate`` keeps the old file beside the new one, under its number.

A backup is one file, encrypted under a passphrase (scrypt, ChaCha20-Poly1305).
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import stat
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

from fedsift.core.identity import SECRET_BYTES, SigningKey
from fedsift.errors import DataError, ParameterError

FOLDER = "secrets"  # beside party.toml
NAMES = ("signing", "draws", "journal")
_BACKUP = b"fedsift secrets v1\n"
_SALT_BYTES, _NONCE_BYTES = 16, 12
_MIN_PASSPHRASE = 12  # characters


@dataclass(frozen=True)
class Secrets:
    """What ``open`` read. Nothing of it is in a ``repr``."""

    folder: Path
    signing_key: SigningKey = field(repr=False)
    draw_secret: bytes = field(repr=False)
    journal_key: bytes = field(repr=False)

    @classmethod
    def open(cls, folder: str | Path) -> Secrets:
        """Read the folder of a site; made with fresh secrets where there is none yet."""
        folder = Path(folder)
        if not folder.exists():
            _make_whole(folder)
        _check_private(folder, 0o700)
        missing = [name for name in NAMES if not _file(folder, name).is_file()]
        if missing:
            raise DataError(
                f"{folder} lacks {_file(folder, missing[0]).name}: bring it back from a backup (fedsift party secrets "
                f"recover), or make a new one knowingly (fedsift party secrets rotate {missing[0]})"
            )
        signing, draws, journal = (_read(_file(folder, name)) for name in NAMES)
        return cls(folder, SigningKey(signing), draws, journal)


def _make_whole(folder: Path) -> None:
    """A folder with fresh secrets, there whole or not at all; of two processes at once one makes it."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}."))  # its mode is 0700
    make(temporary, {name: secrets.token_bytes(SECRET_BYTES) for name in NAMES})
    try:
        temporary.rename(folder)
    except OSError:
        shutil.rmtree(temporary)
        if not folder.is_dir():
            raise


def make(folder: Path, values: dict[str, bytes], *, replace: bool = False) -> None:
    """Write secrets into a folder; one that is there already stays unless ``replace``."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    _check_private(folder, 0o700)
    there = next((_file(folder, name) for name in values if _file(folder, name).exists()), None)
    if there is not None and not replace:
        raise ParameterError(f"{there} is there already; --force replaces it (the old one is kept beside it)")
    for name, value in values.items():
        _retire(_file(folder, name))
        _write_private(_file(folder, name), value.hex().encode() + b"\n")


def rotate(folder: Path, name: str) -> None:
    """A fresh secret in place of one; the old file is kept beside it."""
    if name not in NAMES:
        raise ParameterError(f"there is no secret {name!r}; a site has {', '.join(NAMES)}")
    make(folder, {name: secrets.token_bytes(SECRET_BYTES)}, replace=True)


def backup(folder: Path, file: Path, passphrase: str) -> Path:
    """All secrets in one encrypted file."""
    Secrets.open(folder)  # whole, and private
    content = json.dumps({name: _read(_file(folder, name)).hex() for name in NAMES}).encode()
    salt, nonce = secrets.token_bytes(_SALT_BYTES), secrets.token_bytes(_NONCE_BYTES)
    sealed = ChaCha20Poly1305(_stretched(passphrase, salt)).encrypt(nonce, content, _BACKUP)
    if file.exists():
        raise ParameterError(f"{file} is there already: a backup replaces nothing")
    _write_private(file, _BACKUP + salt + nonce + sealed)
    return file


def recover(folder: Path, file: Path, passphrase: str, *, replace: bool = False) -> None:
    """The secrets of a backup, into a folder that has none (or in place of those that it has)."""
    data = file.read_bytes() if file.is_file() else b""
    if not data.startswith(_BACKUP):
        raise DataError(f"{file} is no backup of a site's secrets")
    salt, rest = data[len(_BACKUP) :][:_SALT_BYTES], data[len(_BACKUP) + _SALT_BYTES :]
    try:
        cipher = ChaCha20Poly1305(_stretched(passphrase, salt))
        content = json.loads(cipher.decrypt(rest[:_NONCE_BYTES], rest[_NONCE_BYTES:], _BACKUP))
    except (InvalidTag, ValueError):
        raise DataError(f"{file} does not open: the passphrase is another, or the file was damaged") from None
    make(folder, {name: bytes.fromhex(content[name]) for name in NAMES}, replace=replace)


def read_key(file: Path) -> bytes:
    """A key that lies by itself in a private file, such as a person's."""
    if not file.is_file():
        raise DataError(f"there is no key {file}")
    return _read(file)


def write_key(file: Path) -> bytes:
    """A fresh key in a new private file."""
    if file.exists():
        raise ParameterError(f"{file} is there already: a key replaces nothing")
    value = secrets.token_bytes(SECRET_BYTES)
    _write_private(file, value.hex().encode() + b"\n")
    return value


def _stretched(passphrase: str, salt: bytes) -> bytes:
    if len(passphrase) < _MIN_PASSPHRASE:
        raise ParameterError(f"a passphrase has at least {_MIN_PASSPHRASE} characters")
    return Scrypt(salt=salt, length=32, n=2**15, r=8, p=1).derive(passphrase.encode())


def _file(folder: Path, name: str) -> Path:
    return folder / f"{name}.key"


def _read(file: Path) -> bytes:
    _check_private(file, 0o600)
    try:
        value = bytes.fromhex(file.read_text(encoding="ascii"))
    except (OSError, ValueError):
        raise DataError(
            f"{file} holds no secret; bring it back from a backup (fedsift party secrets recover)"
        ) from None
    if len(value) != SECRET_BYTES:
        raise DataError(f"{file} holds {len(value)} bytes; a secret has {SECRET_BYTES}")
    return value


def _check_private(path: Path, mode: int) -> None:
    """Refuse what others on this machine can read or change."""
    found = path.lstat()
    if stat.S_ISLNK(found.st_mode):
        raise DataError(f"{path} is a link; secrets lie where they are looked for")
    if os.name == "posix" and stat.S_IMODE(found.st_mode) & ~mode:
        raise DataError(
            f"{path} is open to others on this machine (mode {stat.S_IMODE(found.st_mode):03o}): "
            f"chmod {mode:03o} {path}, and rotate what may have been read"
        )


def _retire(file: Path) -> None:
    if file.exists():
        number = next(n for n in range(1, 10_000) if not file.with_name(f"{file.name}.{n}").exists())
        file.rename(file.with_name(f"{file.name}.{number}"))


def _write_private(file: Path, data: bytes) -> None:
    """A new file that nobody else can read at any moment."""
    handle = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "wb") as out:
        out.write(data)
        out.flush()
        os.fsync(out.fileno())
