"""hybrisfs volume leave, delete, rename: what is asked, told, and how they exit."""

from __future__ import annotations

import json

from tests.cli.conftest import Run, typed
from tests.daemon.fake import FakeVolume, FakeVolumes

OTHER = {"id": "11" * 16, "name": "nas", "forked": False}


def test_leaving_tells_who_keeps_the_data(photos: FakeVolume, run: Run) -> None:
    photos.others = [dict(OTHER)]
    done = run("volume", "leave", "photos")
    assert done.exit_code == 0
    assert done.stdout.splitlines() == [
        "This machine has left photos: nothing of it is here any more.",
        "The data stays with nas, and on the clouds.",
    ]
    assert run("volume", "leave", "photos").exit_code == 4


def test_a_person_is_asked_before_leaving(photos: FakeVolume) -> None:
    photos.others = [dict(OTHER)]
    done = typed("n\n", "volume", "leave", "photos")
    assert done.exit_code == 130 and "Leave photos on this machine; it stays with nas?" in done.output
    assert not photos.has_left
    assert typed("y\n", "volume", "leave", "photos").exit_code == 0 and photos.has_left


def test_what_is_lost_is_told(photos: FakeVolume, run: Run) -> None:
    photos.others = [dict(OTHER)]
    photos.pending_files, photos.pending_bytes, photos.hears = 2, 5000, False
    refused = run("volume", "leave", "photos", "--timeout", "0")
    assert refused.exit_code == 1 and "2 files or folders with 5,000 bytes would be lost" in refused.stderr
    done = run("volume", "leave", "photos", "--timeout", "0", "--force")
    assert "Lost is what does not reach the clouds before: 2 changes (5.0 kB) now.\n" in done.stderr
    assert "Lost is what no cloud had: 2 changes (5.0 kB).\n" in done.stdout
    assert "hybrisfs device remove there." in done.stdout


def test_the_last_machine_takes_the_name_of_the_volume(photos: FakeVolume, run: Run) -> None:
    refused = run("volume", "leave", "photos")
    assert refused.exit_code == 2 and "--last" in refused.stderr
    wrong = typed("photo\n", "volume", "leave", "photos")
    assert wrong.exit_code == 1 and "nobody could then read the clouds without a recovery kit" in wrong.output
    assert "that is not the name of the volume" in wrong.output and not photos.closed
    assert typed("photos\n", "volume", "leave", "photos").exit_code == 0 and photos.closed


def test_deleting_tells_what_goes_and_asks_for_the_name(photos: FakeVolume, run: Run) -> None:
    photos.others = [dict(OTHER)]
    wrong = typed("photo\n", "volume", "delete", "photos")
    assert wrong.exit_code == 2 and "'photo' is not the name of the volume" in wrong.output
    assert "photos: 12 files (3.0 MB), with all earlier versions, on 3 clouds:" in wrong.output
    assert "1 other machine uses it: nas. What only the clouds hold is lost there, too." in wrong.output
    assert not photos.closed
    assert run("volume", "delete", "photos").exit_code == 2, "a script has to give it"
    done = typed("photos\n", "volume", "delete", "photos")
    assert done.exit_code == 0 and photos.closed
    assert "cloud-0: 4 objects (5.0 kB) deleted, the folder, too" in done.output
    assert "Nothing of photos is on this machine any more." in done.output


def test_a_cloud_that_was_not_emptied_is_told(photos: FakeVolume, volumes: FakeVolumes, run: Run) -> None:
    volumes.troubles["cloud-1"] = "it is away"
    done = run("volume", "delete", "photos", "--confirm", "photos")
    assert done.exit_code == 1
    assert "cloud-1: 4 objects (5.0 kB) deleted; not all: it is away" in done.stdout
    assert "to try again: hybrisfs volume delete photos." in done.stdout
    forced = run("volume", "delete", "photos", "--confirm", "photos", "--force", "--json")
    facts = json.loads(forced.stdout)
    assert forced.exit_code == 1 and facts["forgotten"] and facts["clouds"][1]["trouble"] == "it is away"


def test_a_volume_gets_another_name(photos: FakeVolume, run: Run) -> None:
    done = run("volume", "rename", "photos", "pictures")
    assert (done.exit_code, done.stdout) == (0, "photos is called pictures now.\n")
    assert run("volume", "rename", "pictures", "a/b").exit_code == 2
