"""Which of several copies of a kit is believed."""

from __future__ import annotations

from hybrisfs.admit.kit import KitCopy, choose_copy, decode_kit, kit_name
from tests.recovery.support import ADA, BOB, SECRET, STRANGER, URLS, kit, sources

NAME = kit_name(SECRET.kit)


def copies(*data: bytes) -> dict[str, KitCopy]:
    return {url: decode_kit(one, NAME) for url, one in zip(URLS, data, strict=False)}


def test_what_all_return_is_agreed_on() -> None:
    chosen = choose_copy(copies(*[kit()] * 3), SECRET, URLS)
    assert chosen is not None and chosen.agreed and chosen.grant == sources().grant


def test_of_what_equally_many_return_the_latest_is_taken() -> None:
    old, new = kit(sources(5)), kit(sources(6, members=(ADA, BOB)))
    chosen = choose_copy(copies(old, new), SECRET, URLS)
    assert chosen is not None and not chosen.agreed and chosen.grant == sources(6, members=(ADA, BOB)).grant


def test_a_cloud_and_a_removed_device_together_do_not_outvote_the_others() -> None:
    forged = kit(sources(1 << 40, f=0, members=(STRANGER,)), device=STRANGER)
    true = kit()
    for votes in ((forged, true, true), (true, forged, true), (true, true, forged)):
        chosen = choose_copy(copies(*votes), SECRET, URLS)
        assert chosen is not None and chosen.agreed and chosen.grant == sources().grant


def test_clouds_that_only_a_copy_names_do_not_outvote_those_that_the_person_named() -> None:
    forged, true = kit(sources(9, members=(STRANGER,)), device=STRANGER), kit()
    chosen = choose_copy(copies(true, forged, forged), SECRET, URLS[:1])
    assert chosen is not None and chosen.grant == sources().grant and not chosen.agreed


def test_what_does_not_open_does_not_count() -> None:
    wrong = kit()[:-1] + b"?"
    assert choose_copy(copies(wrong, wrong), SECRET, URLS) is None
    chosen = choose_copy(copies(wrong, wrong, kit()), SECRET, URLS)
    assert chosen is not None and not chosen.agreed
    assert choose_copy({}, SECRET, URLS) is None
