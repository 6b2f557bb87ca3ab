"""Answers to PROPFIND: understood or refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.webdav_client import parse_multistatus

ANSWER = b"""<?xml version="1.0"?>
<D:multistatus xmlns:D="DAV:" xmlns:x="urn:x">
  <D:response><D:href>/f/</D:href><D:propstat><D:prop><D:resourcetype><D:collection/></D:resourcetype></D:prop>
    <D:status>HTTP/1.1 200 OK</D:status></D:propstat></D:response>
  <D:response><D:href>/f/a%20b</D:href><D:propstat><D:prop><D:resourcetype/>
    <D:getcontentlength>17</D:getcontentlength><x:getcontentlength>99</x:getcontentlength>
    <D:getlastmodified>Fri, 20 Nov 2026 10:00:00 GMT</D:getlastmodified></D:prop></D:propstat></D:response>
</D:multistatus>"""

ENTITIES = b"""<!DOCTYPE m [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;">]>
<multistatus xmlns="DAV:"><response><href>&b;</href></response></multistatus>"""


@given(st.integers(min_value=1, max_value=len(ANSWER)))
def test_whatever_the_pieces(size: int) -> None:
    folder, file = parse_multistatus(ANSWER[at : at + size] for at in range(0, len(ANSWER), size))
    assert (folder.href, folder.is_folder) == ("/f/", True)
    assert (file.href, file.is_folder, file.size) == ("/f/a%20b", False, 17)
    assert file.modified == "Fri, 20 Nov 2026 10:00:00 GMT"


@pytest.mark.parametrize(
    "body", [b"", b"<a/>", b"<multistatus/>", ANSWER[:-20], ANSWER + b"<x/>", ENTITIES, b"\x00", b"[]"]
)
def test_anything_else_is_refused(body: bytes) -> None:
    with pytest.raises(ValueError, match=r"not|type"):
        parse_multistatus([body])


@given(st.integers(min_value=0, max_value=len(ANSWER) - 1), st.binary(max_size=8))
def test_damage_never_escapes(place: int, damage: bytes) -> None:
    try:
        parse_multistatus([ANSWER[:place] + damage + ANSWER[place + len(damage) :]])
    except ValueError:
        return
