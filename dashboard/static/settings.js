// How the volume behaves on this machine. What the page sets, hybrisfs volume set sets, too.

import { card, empty } from "./parts.js";
import { h } from "./vdom.js";

const GB = 1e9;

export const settings = {
  id: "settings",
  title: "Settings",
  needs: () => [{ name: "settings", every: 10 }],
  view(app) {
    const known = app.data.settings;
    if (known?.failure) return empty(known.failure.message);
    if (!known) return null;
    return [
      known.warnings.length
        ? card(
            "For you to look at",
            { wide: true },
            known.warnings.map((words) => h("p", { key: words }, words)),
          )
        : null,
      h(
        "div",
        { class: "grid-cards", key: "cards" },
        group(app, "Room on this machine", [
          number("cache_bytes", "Keep at most, in GB", Math.round((known.cache_bytes / GB) * 100) / 100, {
            min: 0.07,
            step: "any",
            help: "What the clouds have goes first when there is no more room. What they do not have yet never goes.",
            read: (value) => Math.round(value * GB),
          }),
          choice("hoard", "Keep on this machine, beside what is used on it", known.hoard, {
            asked: "folders of which copies are asked for",
            all: "everything",
            none: "nothing",
          }),
          list("no_fetch_programs", "Programs that fetch nothing", known.no_fetch_programs, {
            help: "Thumbnailers and search indexes would fetch everything. One name per line; * stands for anything.",
          }),
        ]),
        group(app, "What the clouds keep", [
          text("keep_versions", "Earlier versions to keep", known.keep_versions, {
            help: "off, default, or spans such as all:2d,daily:14d,weekly:60d,monthly:2y,room:50G",
          }),
          number("check_days", "Days within which everything on the clouds is checked", known.check_days, {
            min: 1,
            help: "That it is there; fewer days cost more requests.",
          }),
          text("archive_after", "Time without a read until something is archived, on all machines", known.archive_after, {
            help: "30d, 6m; or off. It is then stored over more clouds, a piece on each, which takes less room.",
          }),
          text("archive_code", "How it is archived", known.archive_code, {
            help: "4+1: on five clouds, any four of which are enough to read it. auto: as is cheapest.",
          }),
          number("discard_hours", "Hours until the clouds delete what nothing needs", known.discard_hours, {
            min: 0,
          }),
        ]),
        group(app, "Other machines", [
          check("merge_texts", "Merge texts that were changed in different places, on all machines", known.merge_texts),
          choice("stale_reads", "While one is silent, so that changes may be missing", known.stale_reads, {
            warn: "tell me, and open files",
            block: "have programs wait that open files",
          }),
          number("announce_seconds", "Seconds between their announcements, on all machines", known.announce_seconds, {
            min: 10,
            max: 900,
            help: "The fewer, the sooner you know that changes may be missing. Each one costs requests to the clouds.",
          }),
          number("deletion_percent", "Deletions of more than so many percent wait for me", known.deletion_percent, {
            min: 0,
            max: 100,
            help: "100: none waits.",
          }),
          number("veto_hours", "Hours in which the removal of a machine can be vetoed", known.veto_hours, {
            min: 1,
          }),
          check("evict_liars", "Suspend a machine against which there is proof", known.evict_liars),
        ]),
        group(app, "Links to other machines", [
          check("discover", "Look for them on the local network", known.discover),
          number("link_port", "Port on which they reach this one (0: any)", known.link_port, {
            min: 0,
            max: 65535,
          }),
          list("link_addresses", "Where they may be found", known.link_addresses, {
            help: "One host:port per line.",
          }),
        ]),
        group(app, "Desktop", [
          check("notifications", "Show what needs me as a notification", known.notifications),
        ]),
      ),
    ];
  },
};

/** A form; what was changed in it is sent. */
function group(app, title, fields) {
  const save = async (event) => {
    event.preventDefault();
    const changed = fields
      .map((one) => [one.name, one.read(event.target.elements[one.name]), one.value])
      .filter(([, now, before]) => JSON.stringify(now) !== JSON.stringify(before))
      .map(([name, now]) => [name, now]);
    if (changed.length) await app.act("settings", Object.fromEntries(changed), "Saved.");
  };
  return card(
    title,
    null,
    h(
      "form",
      { onsubmit: save },
      fields.map((one) => one.view),
      h("div", { class: "buttons" }, h("button", { class: "primary" }, "Save")),
    ),
  );
}

function field(name, words, value, read, input, help) {
  const id = `settings-${name}`;
  const view = [
    h(
      "label",
      { key: name },
      h("span", null, words),
      { ...input, props: { ...input.props, "aria-describedby": help ? id : undefined } },
    ),
    help ? h("p", { id, class: "quiet", key: id }, help) : null,
  ];
  return { name, value, read, view };
}

function number(name, words, shown, { min, max, step = 1, help, read = Number }) {
  const input = h("input", { type: "number", name, value: String(shown), min, max, step, required: true });
  return field(name, words, read(shown), (element) => read(Number(element.value)), input, help);
}

function text(name, words, value, { help }) {
  const input = h("input", { name, value, spellcheck: "false", autocomplete: "off" });
  return field(name, words, value, (element) => element.value.trim(), input, help);
}

function list(name, words, value, { help }) {
  const input = h("textarea", { name, rows: 4, spellcheck: "false", value: value.join("\n") });
  const read = (element) =>
    element.value
      .split("\n")
      .map((line) => line.trim())
      .filter(Boolean);
  return field(name, words, value, read, input, help);
}

function choice(name, words, value, options) {
  const input = h(
    "select",
    { name, value },
    Object.entries(options).map(([key, shown]) => h("option", { key, value: key }, shown)),
  );
  return field(name, words, value, (element) => element.value, input);
}

function check(name, words, value) {
  const view = h(
    "label",
    { class: "check", key: name },
    h("input", { type: "checkbox", name, checked: value }),
    words,
  );
  return { name, value, read: (element) => element.checked, view };
}
