"""The secrets of a site and its fingerprint: private, whole, recoverable; words say the same as digits."""

from __future__ import annotations

import os
import stat

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from fedsift.cli.main import app
from fedsift.core.identity import FINGERPRINT_BYTES, Fingerprint, SigningKey, is_signed
from fedsift.errors import DataError, JobError, ParameterError
from fedsift.site import secrets
from fedsift.site.secrets import NAMES, Secrets
from fedsift.site.settings import load_party
from fedsift.site.site import open_site

PHRASE = "a long and private phrase"


@pytest.fixture
def folder(tmp_path):
    Secrets.open(tmp_path / "secrets")
    return tmp_path / "secrets"


@pytest.fixture
def party(tmp_path):
    pd.DataFrame({"id": range(60), "x": np.arange(60.0)}).to_csv(tmp_path / "bank.csv", index=False)
    path = tmp_path / "party.toml"
    path.write_text('[party]\nname = "bank"\nfile = "bank.csv"\nid = "id"\n')
    return path


def mode(path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


# --- fingerprints ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(40))
def test_words_and_digits_read_back_as_the_same_fingerprint(seed):
    made = Fingerprint(np.random.default_rng(seed).bytes(FINGERPRINT_BYTES))
    assert Fingerprint.read(made.hex) == Fingerprint.read(made.words) == made
    assert Fingerprint.read(made.data.hex().upper()) == Fingerprint.read(made.words.replace(" ", "-")) == made
    assert len(made.words.split()) == FINGERPRINT_BYTES // 2


def test_every_byte_has_a_syllable_of_its_own():
    words = {Fingerprint(bytes([byte] * FINGERPRINT_BYTES)).words for byte in range(256)}
    assert len(words) == 256


@pytest.mark.parametrize("text", ["", "3f2a", "00" * 19, "00" * 21, "zz" * 20, "bank shop", "babe " * 9, "babe " * 11])
def test_what_is_no_fingerprint_is_refused(text):
    with pytest.raises(ParameterError, match="no fingerprint"):
        Fingerprint.read(text)


def test_a_signature_is_of_one_key_and_one_statement():
    key, other = SigningKey.generate(), SigningKey.generate()
    signature = key.sign(b"statement")
    assert is_signed(b"statement", signature, key.public)
    for statement, signed, public in [
        (b"statement.", signature, key.public), (b"statement", signature, other.public),
        (b"statement", signature[:-1], key.public), (b"statement", signature + b"x", key.public),
        (b"statement", bytes(64), key.public), (b"statement", signature, key.public[:31]), (b"statement", b"", b""),
    ]:  # fmt: skip
        assert not is_signed(statement, signed, public)


# --- the folder ------------------------------------------------------------------------------------------------------


def test_secrets_are_made_once_and_private(folder):
    first, again = Secrets.open(folder), Secrets.open(folder)
    assert (first.signing_key.public, first.draw_secret, first.journal_key) == (
        again.signing_key.public, again.draw_secret, again.journal_key
    )  # fmt: skip
    assert len({first.draw_secret, first.journal_key, first.signing_key.public}) == 3
    assert len(first.journal_key) == len(first.draw_secret) == 32
    assert mode(folder) == 0o700
    assert {mode(folder / f"{name}.key") for name in NAMES} == {0o600}
    assert first.draw_secret.hex() not in repr(first)
    assert first.journal_key.hex() not in repr(first)


@pytest.mark.parametrize("name", [None, *NAMES])
def test_a_folder_or_file_that_others_can_read_is_refused(folder, name):
    path = folder if name is None else folder / f"{name}.key"
    path.chmod(mode(path) | 0o040)
    with pytest.raises(DataError, match="open to others"):
        Secrets.open(folder)
    path.chmod(0o700 if name is None else 0o600)
    Secrets.open(folder)


@pytest.mark.parametrize("name", NAMES)
def test_a_lost_secret_is_not_made_anew_in_silence(folder, name):
    (folder / f"{name}.key").unlink()
    with pytest.raises(DataError, match=rf"lacks {name}\.key.*rotate {name}"):
        Secrets.open(folder)
    secrets.rotate(folder, name)
    Secrets.open(folder)


@pytest.mark.parametrize("text", ["", "zz", "00" * 31, "00" * 33])
def test_a_damaged_secret_is_refused(folder, text):
    (folder / "journal.key").write_text(text)
    with pytest.raises(DataError, match=r"journal\.key holds"):
        Secrets.open(folder)


def test_a_link_in_place_of_a_secret_is_refused(folder, tmp_path):
    (folder / "draws.key").rename(tmp_path / "elsewhere")
    os.symlink(tmp_path / "elsewhere", folder / "draws.key")
    with pytest.raises(DataError, match="is a link"):
        Secrets.open(folder)


def test_rotating_changes_one_secret_and_keeps_the_old_file(folder):
    before = Secrets.open(folder)
    old = (folder / "signing.key").read_bytes()
    secrets.rotate(folder, "signing")
    secrets.rotate(folder, "signing")
    after = Secrets.open(folder)
    assert after.signing_key.public != before.signing_key.public
    assert (after.draw_secret, after.journal_key) == (before.draw_secret, before.journal_key)
    assert (folder / "signing.key.1").read_bytes() == old
    assert (folder / "signing.key.2").is_file()
    with pytest.raises(ParameterError, match="no secret 'all'"):
        secrets.rotate(folder, "all")


def test_a_backup_brings_everything_back_and_tells_nothing_without_the_passphrase(folder, tmp_path):
    kept = Secrets.open(folder)
    file = secrets.backup(folder, tmp_path / "backup", PHRASE)
    data = file.read_bytes()
    assert mode(file) == 0o600
    for value in (kept.draw_secret, kept.journal_key):
        assert value not in data
        assert value.hex().encode() not in data
    with pytest.raises(DataError, match="passphrase is another"):
        secrets.recover(tmp_path / "new", file, PHRASE + ".")
    file.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    with pytest.raises(DataError, match="damaged"):
        secrets.recover(tmp_path / "new", file, PHRASE)
    file.write_bytes(data)
    secrets.recover(tmp_path / "new", file, PHRASE)
    assert Secrets.open(tmp_path / "new").journal_key == kept.journal_key
    with pytest.raises(ParameterError, match="already"):
        secrets.recover(folder, file, PHRASE)
    secrets.recover(folder, file, PHRASE, replace=True)
    with pytest.raises(ParameterError, match="already"):
        secrets.backup(folder, file, PHRASE)
    with pytest.raises(ParameterError, match="at least 12"):
        secrets.backup(folder, tmp_path / "weak", "short")


# --- party.toml and the command line ---------------------------------------------------------------------------------


def test_a_site_has_the_secrets_beside_its_file_and_the_peers_in_it(party):
    other = SigningKey.generate().fingerprint
    party.write_text(party.read_text() + f'[peers]\nshop = "{other.words}"\n')
    site = open_site(party)
    kept = Secrets.open(party.parent / "secrets")
    assert site.secret == kept.draw_secret
    assert site.identity.key.public == kept.signing_key.public
    assert site.identity.peers == {"shop": other}


def test_a_fingerprint_that_is_none_is_named_with_its_line(party):
    party.write_text(party.read_text() + '[peers]\nshop = "3f2a"\n')
    with pytest.raises(JobError, match=r"line 6.*no fingerprint"):
        load_party(party)


def test_the_command_shows_the_fingerprint_and_no_secret(party):
    shown = CliRunner().invoke(app, ["party", "fingerprint", "--party", str(party)])
    kept = Secrets.open(party.parent / "secrets")
    assert shown.exit_code == 0
    assert f'"bank" = "{kept.signing_key.fingerprint.hex}"' in shown.output
    assert kept.signing_key.fingerprint.words in shown.output
    listed = CliRunner().invoke(app, ["party", "secrets", "show", "--party", str(party)])
    for value in (kept.draw_secret, kept.journal_key):
        assert value.hex() not in shown.output + listed.output


def test_what_the_command_shows_is_what_the_other_sides_file_takes(party, tmp_path):
    shown = CliRunner().invoke(app, ["party", "fingerprint", "--party", str(party)]).output
    made = CliRunner().invoke(
        app, ["party", "init", str(tmp_path / "bank.csv"), "--name", "shop", "--out", str(tmp_path / "o")]
    )
    assert made.exit_code == 0
    (tmp_path / "o").write_text((tmp_path / "o").read_text() + shown)
    assert load_party(tmp_path / "o")[0].pins() == {"bank": Secrets.open(tmp_path / "secrets").signing_key.fingerprint}


def test_the_command_backs_up_rotates_and_recovers(party, tmp_path, monkeypatch):
    monkeypatch.setenv("FEDSIFT_PASSPHRASE", PHRASE)

    def run(*words: str) -> int:
        return CliRunner().invoke(app, ["party", "secrets", *words, "--party", str(party)]).exit_code

    before = Secrets.open(tmp_path / "secrets").journal_key
    assert run("backup", str(tmp_path / "copy")) == 0
    assert run("rotate", "journal") == 0
    assert Secrets.open(tmp_path / "secrets").journal_key != before
    assert run("recover", str(tmp_path / "copy")) == 2
    assert run("recover", str(tmp_path / "copy"), "--force") == 0
    assert Secrets.open(tmp_path / "secrets").journal_key == before
    assert run("rotate") == run("rotate", "everything") == 2
