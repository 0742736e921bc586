"""A step of ``nvflare provision`` that closes every site to code from outside.

FLARE can let a job bring its own Python code, and by default lets some users do so. A fedsift job brings none. So the
start kits that our project template (``project.yml``) makes allow no custom code to anybody, and of the classes that
a job may name, only those that a fedsift job is made of. What runs at a party is then the fedsift that the party
installed itself, under its own policy. A party's log may quote data, so FLARE's sending of logs to the server is off,
and so are its shell commands for administrators. The files are in each kit's ``local`` folder for the site to read.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from nvflare.lighter.ctx import ProvisionContext
from nvflare.lighter.entity import Project
from nvflare.lighter.spec import Builder

from fedsift.deploy.flare_job import CLASSES

RESOURCES = "resources.json.default"
AUTHORIZATION = "authorization.json.default"
SILENCE = 180  # seconds without a sign of life after which a client counts as gone (FLARE's default: 600)
_NOBODY = {"byoc": "none", "shell_commands": "none", "server-predeployed-flwr": "none"}


class CloseSites(Builder):  # type: ignore[misc]
    """Named in ``project.yml`` after FLARE's own builder of configuration files."""

    def initialize(self, project: Project, ctx: ProvisionContext) -> None:
        """Whatever this command writes from now on (keys, ``cert.json``, kits) is for this account alone."""
        os.umask(0o077)

    def build(self, project: Project, ctx: ProvisionContext) -> None:
        for participant in [project.get_server(), *project.get_clients()]:
            local = Path(ctx.get_local_dir(participant))
            _change(local / RESOURCES, _only_fedsift)
            _change(local / AUTHORIZATION, _no_custom_code)
        for folder in (Path(ctx.get_wip_dir()), Path(ctx.get_state_dir())):  # made before: whatever lies in them is too
            for path in (folder, *folder.rglob("*")):
                if not path.is_symlink():
                    path.chmod(path.stat().st_mode & 0o700)


def _only_fedsift(resources: dict[str, Any]) -> None:
    resources["class_list_enforcement_mode"] = "enforce"
    resources["class_allow_list"] = list(CLASSES)
    for server in resources.get("servers", []):
        server["heart_beat_timeout"] = SILENCE
    if "allow_log_streaming" in resources:  # a client's: its log may quote data, and FLARE would send it to the server
        resources["allow_log_streaming"] = False
        parts = [part for part in resources["components"] if part["id"] != "site_log_streamer"]
        resources["components"] = parts


def _no_custom_code(rules: dict[str, Any]) -> None:
    for role, rights in rules["permissions"].items():
        if rights == "any":
            names = ("submit_job", "clone_job", "manage_job", "download_job", "view", "operate")
            rules["permissions"][role] = {**dict.fromkeys(names, "any"), **_NOBODY}
        elif isinstance(rights, dict) and "byoc" in rights:
            rights.update(_NOBODY)


def _change(path: Path, change: Any) -> None:
    content = json.loads(path.read_text(encoding="utf-8"))
    change(content)
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
