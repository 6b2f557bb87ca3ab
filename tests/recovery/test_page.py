from __future__ import annotations

import time
from html.parser import HTMLParser

from hybrisfs.admit.kits import html_page, recover_command, text_page

URLS = ["file:///mnt/my disk/photos", "s3://bucket/a?region=x&endpoint=<y>"]
MADE = time.struct_time((2026, 11, 22, 1, 2, 3, 0, 0, 0))
KIT = "0123456789abcdef" * 2


def test_the_command_can_be_typed_as_it_stands() -> None:
    import shlex

    words = shlex.split(recover_command(URLS))
    assert words == ["hybrisfs", "recover", "--cloud", URLS[0], "--cloud", URLS[1]]


def test_the_text_says_what_is_needed() -> None:
    page = text_page("photos", KIT, URLS, MADE)
    for needed in ("photos", KIT[:8], "2026-11-22", *URLS, recover_command(URLS), "Passphrase", "____"):
        assert needed in page


def test_the_html_is_whole_and_shows_hostile_urls_as_text() -> None:
    page = html_page("photos", KIT, URLS, MADE)
    assert "<y>" not in page and "&lt;y&gt;" in page
    tags: list[str] = []

    class Check(HTMLParser):
        def handle_starttag(self, tag: str, attrs: object) -> None:
            if tag not in ("meta", "path"):
                tags.append(tag)

        def handle_endtag(self, tag: str) -> None:
            if tag != "path":
                assert tags.pop() == tag

    Check().feed(page)
    assert tags == []
    assert page.count("<svg") == 1


def test_too_many_clouds_for_a_qr_code_make_a_page_without_one() -> None:
    many = [f"s3://bucket-{number}/{'x' * 100}" for number in range(32)]
    page = html_page("photos", KIT, many, MADE)
    assert "<svg" not in page and many[-1] in page
