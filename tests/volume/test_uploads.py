"""What of other devices is on no cloud, and which of them is named for it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from hybrisfs.api.status import MachinesOnly
from tests.write.test_taking_over import CONTENT, TakingOver


@pytest.fixture
def post() -> Iterator[TakingOver]:
    one = TakingOver()
    yield one
    one.fleet.discard()


def machines_only(post: TakingOver) -> MachinesOnly:
    """As the second device tells it."""
    rig = post.near.rig
    uploads = post.shipping[post.near.name].uploads
    with rig.fs.state.transaction() as tx:
        return uploads.machines_only(tx)


def test_where_files_are_lacking_only_their_devices_are_named(post: TakingOver) -> None:
    """The third device has yet to bring a change there, and no bytes of a file."""
    post.far.mkdir("of the third")
    post.tell(post.far, post.near)
    assert machines_only(post) == MachinesOnly(2, 2 * len(CONTENT), [post.author.name])


def test_where_no_file_is_lacking_all_are_named_whose_changes_no_cloud_has(post: TakingOver) -> None:
    post.author.rig.pack()
    post.ship(post.author)
    post.tell(post.author, post.near)
    assert machines_only(post) == MachinesOnly(0, 0, [])
    post.far.mkdir("of the third")
    post.tell(post.far, post.near)
    assert machines_only(post) == MachinesOnly(0, 0, [post.far.name])


def test_who_waits_reads_what_members_say_to_be_on_the_clouds(post: TakingOver) -> None:
    """Two devices wrote the same, so that the second believes neither of them unread."""
    post.far.write("the same", CONTENT)
    post.tell(post.far, post.near)
    for device in (post.author, post.far):
        device.rig.pack()
        post.ship(device)
        post.tell(device, post.near)
    post.tell(post.near, post.far)
    post.ship(post.near)
    rig = post.near.rig
    uploads = post.shipping[post.near.name].uploads
    with rig.fs.state.transaction() as tx:
        assert uploads.machines_only(tx).files == 2
    assert uploads.wait(10.0, lambda done, total: None)
    with rig.fs.state.transaction() as tx:
        assert uploads.machines_only(tx).files == 0
