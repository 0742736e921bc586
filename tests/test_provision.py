"""What ``nvflare provision`` makes from our template is for the account that made it."""

from __future__ import annotations

import stat

import pytest

pytest.importorskip("nvflare", reason="the extra flare is not installed")

from fedsift.deploy import local_system


def test_keys_and_kits_are_readable_to_their_account_alone(tmp_path):
    project = tmp_path / "project.yml"
    project.write_text((local_system.Path(local_system.__file__).with_name("project.yml")).read_text())
    local_system.provision(project, tmp_path / "made")
    whole = [path for path in (tmp_path / "made").rglob("*") if len(path.relative_to(tmp_path).parts) > 2]
    names = {path.name for path in whole}
    assert {"cert.json", "client.key", "server.key", "start.sh"} <= names
    assert {stat.S_IMODE(path.stat().st_mode) & 0o077 for path in whole} == {0}
    assert all(path.stat().st_mode & stat.S_IXUSR for path in whole if path.name == "start.sh"), "it still starts"
