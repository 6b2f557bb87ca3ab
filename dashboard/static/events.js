// What has happened.

import { badge, card, empty } from "./parts.js";
import { h } from "./vdom.js";
import { moment } from "./words.js";

const TONES = { trouble: "wary", over: "good", news: "quiet" };
const WORDS = { trouble: "trouble", over: "over", news: "news" };

export const events = {
  id: "events",
  title: "Events",
  needs: () => [{ name: "events", every: 3 }],
  view(app) {
    const known = app.data.events;
    if (known?.failure) return empty(known.failure.message);
    if (!known) return null;
    const found = [...known.events].reverse();
    return card(
      "What has happened",
      { wide: true },
      found.length ? h("ol", { class: "log" }, found.map(line)) : empty("Nothing worth telling yet."),
    );
  },
};

function line(one) {
  return h(
    "li",
    { key: one.number },
    h("time", { datetime: new Date(one.time * 1000).toISOString() }, moment(one.time)),
    badge(TONES[one.kind] ?? "quiet", WORDS[one.kind] ?? one.kind),
    h("span", null, one.text),
  );
}

/** The latest events, for the overview. */
export function lately(app) {
  const found = (app.data.events?.events ?? []).slice(-4).reverse();
  if (!found.length) return null;
  return card(
    "Lately",
    { wide: true, aside: h("a", { href: "#events" }, "All") },
    h("ol", { class: "log" }, found.map(line)),
  );
}
