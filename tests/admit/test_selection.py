"""Which of several copies of a kit is believed."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, combinations, product

import pytest
from msgspec.structs import replace

from hybrisfs.admit.kit import Held, Sources, choose_copy, decode_kit, kit_name
from hybrisfs.pairing.messages import GrantedCloud
from tests.recovery.support import ADA, BOB, SECRET, STRANGER, URLS, kit, sources

NAME = kit_name(SECRET.kit)


def copies(*data: bytes) -> list[Held]:
    """What each of the clouds has."""
    return held(*([one] for one in data))


def held(*clouds: Sequence[bytes]) -> list[Held]:
    """What each of the clouds has, several versions maybe."""
    holders: dict[bytes, set[str]] = {}
    for url, found in zip(URLS, clouds, strict=False):
        for data in found:
            holders.setdefault(data, set()).add(url)
    return [Held(decode_kit(data, NAME), frozenset(urls)) for data, urls in holders.items()]


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
    assert choose_copy((), SECRET, URLS) is None


OLD, NEW = kit(sources(5)), kit(sources(6, members=(ADA, BOB)))
EVIL = tuple(f"file:///evil/{number}" for number in range(32))


def forged(f: int, clouds: Sequence[str]) -> bytes:
    """The latest of all, with clouds and an f as they suit a device that was removed."""
    grant = sources(1 << 40, members=(STRANGER,)).grant
    granted = tuple(GrantedCloud(number, f"c{number}", url) for number, url in enumerate(clouds))
    return kit(Sources(replace(grant, f=f, clouds=granted), 1 << 40), device=STRANGER)


FORGED = (forged(0, EVIL[:1]), forged(1, EVIL[:3]), forged(1, URLS), forged(15, EVIL))


def subsets(of: Sequence[bytes]) -> list[tuple[bytes, ...]]:
    return list(chain.from_iterable(combinations(of, count) for count in range(len(of) + 1)))


@pytest.mark.parametrize("liar", range(3))
@pytest.mark.parametrize("kept", [(), (0,), (0, 1)], ids=["new only", "one has the old", "both have the old"])
def test_a_cloud_that_lies_with_a_removed_device_neither_hides_the_new_nor_plants_its_own(
    liar: int, kept: tuple[int, ...]
) -> None:
    for lies in subsets((OLD, *FORGED)):
        clouds = [[NEW, OLD] if number in kept else [NEW] for number in range(2)]
        clouds.insert(liar, list(lies))
        chosen = choose_copy(held(*clouds), SECRET, URLS)
        assert chosen is not None and chosen.by_named
        assert chosen.grant == sources(6, members=(ADA, BOB)).grant


@pytest.mark.parametrize("liar", [1, 2])
def test_of_few_that_the_person_named_a_believed_version_leads_to_a_later_one(liar: int) -> None:
    """The person named two of the three clouds, and one of these lies; or the third does."""
    for lies in subsets((*FORGED[:2], FORGED[3])):
        clouds = [[NEW, OLD], [NEW, OLD]]
        clouds.insert(liar, [OLD, *lies])
        chosen = choose_copy(held(*clouds), SECRET, URLS[:2])
        assert chosen is not None and chosen.grant == sources(6, members=(ADA, BOB)).grant


def test_while_a_version_is_on_its_way_the_one_before_it_is_found() -> None:
    for liar, lies in product(range(3), subsets(FORGED)):
        clouds = [[NEW, OLD], [OLD]]
        clouds.insert(liar, list(lies))
        chosen = choose_copy(held(*clouds), SECRET, URLS)
        assert chosen is not None and chosen.grant in (sources().grant, sources(6, members=(ADA, BOB)).grant)
        assert chosen.agreed or FORGED[3] in lies  # which claims that far more clouds have to agree


def test_a_forged_version_that_says_f_is_0_is_not_agreed_on() -> None:
    """Clouds that programs before this one wrote to, with a renewal on its way."""
    chosen = choose_copy(held([NEW], [OLD], [FORGED[0]]), SECRET, URLS)
    assert chosen is not None and not chosen.agreed


def test_a_cloud_that_was_named_and_contradicts_is_told_of() -> None:
    evil = held([NEW], [FORGED[1]])
    evil[-1] = Held(evil[-1].copy, frozenset((URLS[1], *EVIL[:3])))
    chosen = choose_copy(evil, SECRET, URLS[:2])
    assert chosen is not None and not chosen.agreed


def test_what_only_clouds_have_that_the_kit_names_is_agreed_on_and_said_to_be() -> None:
    chosen = choose_copy(copies(*[NEW] * 3), SECRET, URLS[:1])
    assert chosen is not None and chosen.agreed and not chosen.by_named
    chosen = choose_copy(copies(*[NEW] * 3), SECRET, URLS[:2])
    assert chosen is not None and chosen.agreed and chosen.by_named


def test_what_the_only_cloud_that_was_named_says_of_f_is_not_enough() -> None:
    chosen = choose_copy(held([FORGED[0]], [NEW], [NEW]), SECRET, URLS[:1])
    assert chosen is not None and not chosen.agreed


@pytest.mark.parametrize(("f", "count", "liars"), [(0, 3, 1), (1, 5, 2)])
def test_more_clouds_that_lie_than_f_but_less_than_half_of_those_that_were_named_plant_nothing(
    f: int, count: int, liars: int
) -> None:
    urls = EVIL[:count]
    granted = tuple(GrantedCloud(number, f"c{number}", url) for number, url in enumerate(urls))
    true = kit(Sources(replace(sources().grant, f=f, clouds=granted), 5))
    found = [
        Held(decode_kit(true, NAME), frozenset(urls[liars:])),
        *(Held(decode_kit(one, NAME), frozenset(urls[:liars])) for one in FORGED),
    ]
    chosen = choose_copy(found, SECRET, urls)
    assert chosen is not None and chosen.grant.clouds == granted


def test_clouds_that_were_named_and_have_left_do_not_make_what_the_others_have_doubtful() -> None:
    chosen = choose_copy(held([NEW], [NEW], [FORGED[0]]), SECRET, (*URLS, *EVIL[:3]))
    assert chosen is not None and chosen.agreed and chosen.grant == sources(6, members=(ADA, BOB)).grant
