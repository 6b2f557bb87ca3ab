"""What must hold of every page that people see: what Lighthouse looks at, without its scores of speed.

Of light and dark, names, labels, headings, contrast and the size of what is touched, axe knows the rules.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from urllib.parse import urlsplit

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, Response

__all__ = ["is_confined", "is_sound", "no_violations", "overheard"]

# In a row of links that scrolls, axe takes those beyond the edge for links that skip something.
_RULES = {
    "preload": False,  # asks for the style sheets once more
    "resultTypes": ["violations"],
    "rules": {"target-size": {"enabled": True}, "skip-link": {"enabled": False}},
}
_SHIFT = 0.02  # 0.1 is called good
_LARGEST_FILE = 100_000  # bytes, each and all; nothing is compressed, as it comes from this machine
_LARGEST_PAGE = 500_000

# What the page has moved while it was loaded, and what moved. The observer hears of what was before it.
_SHIFTED = """() => new Promise(resolve => {
    const found = [];
    new PerformanceObserver(list => found.push(...list.getEntries()))
        .observe({ type: "layout-shift", buffered: true });
    const said = source => {
        const element = source.node?.closest ? source.node : source.node?.parentElement;
        return `${element?.localName} ${source.previousRect.y} -> ${source.currentRect.y}`;
    };
    requestAnimationFrame(() => setTimeout(() => resolve({
        sum: found.reduce((sum, one) => sum + (one.hadRecentInput ? 0 : one.value), 0),
        sources: found.flatMap(one => [...one.sources].map(said)),
    })));
})"""

# Marks what the keyboard must reach, and notes what gets the focus, and whether that can be seen.
_WATCH_FOCUS = """() => {
    const kinds = "a[href], button, input, select, textarea, summary, [tabindex]";
    const wanted = [...document.querySelectorAll(kinds)].filter(one =>
        one.tabIndex >= 0 && !one.disabled && one.checkVisibility({ visibilityProperty: true }));
    window.focused = new Map();
    document.activeElement?.blur();
    getSelection().removeAllRanges();
    addEventListener("focusin", ({ target }) => {
        const { outlineStyle, outlineWidth } = getComputedStyle(target);
        const own = outlineStyle !== "none" && parseFloat(outlineWidth) >= 2;
        window.focused.set(target, own || outlineStyle === "auto");
    });
    window.unreached = () => wanted.filter(one => one.isConnected && !window.focused.has(one));
    return wanted.length;
}"""
_SAID = "one => `${one.localName} ${one.getAttribute('aria-label') ?? one.name ?? ''} ${one.textContent}`"
_UNREACHED = f"() => window.unreached().map({_SAID})"
_UNSEEN = f"() => [...window.focused].filter(([, seen]) => !seen).map(([one]) => one).map({_SAID})"

_MOVING = """() => [...document.querySelectorAll("*")].filter(one => {
    const { transitionDuration, animationName, scrollBehavior } = getComputedStyle(one);
    return !/^0s(, 0s)*$/.test(transitionDuration) || animationName !== "none" || scrollBehavior !== "auto";
}).map(one => `${one.localName}.${one.className}`)"""

_LOADED = """() => Object.fromEntries(performance.getEntriesByType("resource")
    .map(one => [new URL(one.name).pathname, one.decodedBodySize]))"""

_POLICY = "document.querySelector('meta[http-equiv=Content-Security-Policy]')?.content ?? ''"
_HEAD = """() => ({
    title: document.title,
    language: document.documentElement.lang,
    viewport: document.querySelector("meta[name=viewport]")?.content ?? "",
    headings: [...document.querySelectorAll("h1, h2, h3, h4, h5, h6")]
        .filter(one => one.checkVisibility()).map(one => Number(one.localName[1])),
})"""


def overheard(page: Page, home: str) -> list[str]:
    """What the browser complains of from now on, and what the page asks of anybody but *home*, an address."""
    complaints: list[str] = []
    page.on("console", lambda message: complaints.append(f"{message.type}: {message.text}"))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("requestfailed", lambda request: complaints.append(f"{request.url}: {request.failure}"))
    own = urlsplit(home)[:2]

    def asked(url: str) -> None:
        if urlsplit(url)[:2] != own and urlsplit(url).scheme not in ("data", "blob"):
            complaints.append(f"asks elsewhere: {url}")

    page.on("request", lambda request: asked(request.url))
    return complaints


def no_violations(page: Page, tags: Sequence[str] = ()) -> None:
    """None of the rules of axe is broken; only those with one of *tags* are looked at, if there are any."""
    found = Axe().run(page, options={**_RULES, **({"runOnly": list(tags)} if tags else {})})
    assert found.violations_count == 0, found.generate_report()


def is_confined(page: Page, answer: Response | None) -> None:
    """The page, which is *answer*, may load only what its policy names, and keeps no cookies."""
    policy = answer.headers.get("content-security-policy", "") if answer else ""
    assert "default-src 'none'" in (policy or page.evaluate(_POLICY)), "it may load anything"
    assert page.context.cookies() == [], "it keeps cookies"


def is_sound(page: Page, tags: Sequence[str] = ()) -> None:
    """The page, just loaded, with motion reduced, is as every page must be; *tags* as of `no_violations`."""
    shifted = page.evaluate(_SHIFTED)
    assert shifted["sum"] < _SHIFT, f"it moves while it is loaded: {shifted}"
    head = page.evaluate(_HEAD)
    assert head["title"].strip()
    assert head["language"] == "en"
    assert re.fullmatch(r"width=device-width, ?initial-scale=1", head["viewport"]), head
    headings = head["headings"]
    assert headings.index(1) == 0, headings
    assert headings.count(1) == 1, headings
    assert all(after - before <= 1 for before, after in itertools.pairwise(headings)), headings
    loaded = page.evaluate(_LOADED)
    assert max(loaded.values(), default=0) <= _LARGEST_FILE, loaded
    assert sum(loaded.values()) <= _LARGEST_PAGE, loaded
    assert page.evaluate(_MOVING) == [], "it moves although motion is to be reduced"
    _is_for_the_keyboard(page)
    no_violations(page, tags)


def _is_for_the_keyboard(page: Page) -> None:
    wanted = page.evaluate(_WATCH_FOCUS)
    for number in range(2 * wanted):  # what scrolls is reached, too
        page.keyboard.press("Tab")
        if number >= wanted and page.evaluate(_UNREACHED) == []:
            break
    assert page.evaluate(_UNREACHED) == [], "the keyboard does not reach everything"
    assert page.evaluate(_UNSEEN) == [], "the focus is not seen"
