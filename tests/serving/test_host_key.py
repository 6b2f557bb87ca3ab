"""The key of SFTP: made once, for this user only, and never something else."""

from __future__ import annotations

from pathlib import Path

import asyncssh
import pytest

from hybrisfs.client import HybrisError
from serving.host_key import host_key


def test_it_is_made_once_and_for_this_user_only(tmp_path: Path) -> None:
    first, second = host_key(tmp_path), host_key(tmp_path)
    assert (first.is_new, second.is_new) == (True, False)
    assert first.fingerprint == second.fingerprint
    assert first.fingerprint.startswith("SHA256:")
    assert first.key.public_data == second.key.public_data
    [file] = tmp_path.iterdir()
    assert file.stat().st_mode & 0o777 == 0o600


def test_what_is_no_key_of_ours_is_named(tmp_path: Path) -> None:
    path = tmp_path / "ssh-host-key"
    other = asyncssh.generate_private_key("ecdsa-sha2-nistp256")
    locked = asyncssh.generate_private_key("ssh-ed25519").export_private_key("pkcs8-pem", passphrase="x")
    for content in (b"", b"nothing", other.export_private_key(), locked):
        path.write_bytes(content)
        with pytest.raises(HybrisError, match="ssh-host-key") as failed:
            host_key(tmp_path)
        assert "Remove it" in failed.value.advice
        assert path.read_bytes() == content
