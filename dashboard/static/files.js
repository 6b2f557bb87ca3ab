// Folders, and where the content of each file is.

import { about, ask } from "./api.js";
import { copies, showCopies } from "./copies.js";
import { earlier, showEarlier } from "./earlier.js";
import { badge, button, empty, icon, reveal } from "./parts.js";
import { pins, showPins } from "./pins.js";
import { shared, showShared } from "./shared.js";
import { h } from "./vdom.js";
import { past, showRemoved, showVersions } from "./versions.js";
import { moment, size } from "./words.js";

const STATES = {
  durable: ["good", "safe", "On the clouds and on this machine"],
  "cloud-only": ["quiet", "on the clouds", "On the clouds; fetched when it is opened"],
  uploading: ["busy", "on its way", "On the way to the clouds; safe on this machine"],
  local: ["wary", "only here", "Only on this machine: it is open in a program, or too few clouds work"],
  conflict: ["wary", "conflict", "Changed in two places at once"],
  ignored: ["quiet", "ignored", "Only on this machine, by an ignore rule"],
};
const EVERY = 5000; // milliseconds

export const files = {
  id: "files",
  title: "Files",
  view(app) {
    const place = app.memory("folder", unread(""));
    if (app.wanted) arrive(app, place);
    if (performance.now() - place.loaded > EVERY) load(app, place);
    if (!place.begun) return null;
    return [
      crumbs(app, place),
      place.failure
        ? empty(place.failure.message)
        : place.entries === null
          ? empty("Looking …")
          : table(app, place),
      preview(app, place),
      past(app, place),
      earlier(app, place),
      pins(app, place),
      copies(app, place),
      shared(app, place),
    ];
  },
};

/** A folder of which nothing has been read yet. */
function unread(path) {
  return {
    path,
    entries: null,
    more: false,
    pages: 1,
    failure: null,
    loaded: -Infinity,
    busy: false,
    preview: null,
    past: null,
    earlier: null,
    pins: null,
    copies: false,
    shared: null,
  };
}

/** Go to what the link wants to be shown: a folder, or a file with its versions. */
function arrive(app, place) {
  const { folder, file } = app.wanted;
  app.wanted = null;
  Object.assign(place, unread(folder ?? file.split("/").slice(0, -1).join("/")));
  if (file !== undefined) showVersions(app, place, file);
}

async function load(app, place) {
  if (place.busy) return;
  place.busy = true;
  place.loaded = performance.now();
  const { path } = place;
  const url = about(app.volume.name, "folder");
  try {
    let entries = [];
    let more = true;
    for (let page = 0; page < place.pages && more; page += 1) {
      const facts = await ask(url, { path, after: entries.at(-1)?.name ?? "" });
      entries = entries.concat(facts.entries);
      more = facts.more;
    }
    if (place.path === path) Object.assign(place, { entries, more, failure: null });
  } catch (failure) {
    if (place.path === path) Object.assign(place, { entries: null, failure });
  } finally {
    Object.assign(place, { busy: false, begun: true });
  }
  app.redraw();
}

function go(app, place, path) {
  Object.assign(place, unread(path));
  app.redraw();
}

function crumbs(app, place) {
  const parts = place.path ? place.path.split("/") : [];
  const link = (words, path, last) =>
    h(
      "li",
      { key: path },
      last
        ? h("span", { "aria-current": "location" }, words)
        : h("button", { type: "button", class: "plain", onclick: () => go(app, place, path) }, words),
    );
  return h(
    "div",
    { class: "toolbar", key: "crumbs" },
    h(
      "nav",
      { class: "crumbs", "aria-label": "Folder" },
      h(
        "ol",
        null,
        link(app.volume.name, "", !parts.length),
        parts.map((part, index) =>
          link(part, parts.slice(0, index + 1).join("/"), index === parts.length - 1),
        ),
      ),
    ),
    h(
      "div",
      { class: "buttons" },
      button("As it was", () => below("earlier", showEarlier(app, place))),
      button("Pinned", () => below("pins", showPins(app, place))),
      button("Copies", () => below("copies", showCopies(app, place))),
      button("Removed files", () => below("past", showRemoved(app, place, place.path))),
      button("Shared by links", () => below("shared", showShared(app, place))),
    ),
  );
}

/** Show what comes below the folder, which may be long. */
async function below(heading, opening) {
  await opening;
  reveal(heading);
}

function table(app, place) {
  if (!place.entries.length) return empty("This folder is empty.");
  return h(
    "div",
    { class: "card wide", key: "table" },
    h(
      "table",
      { class: "files" },
      h("caption", { class: "hidden" }, "What is in the folder"),
      h(
        "thead",
        null,
        h(
          "tr",
          null,
          ["Name", "State", "Size", "Changed", "On this machine"].map((one) =>
            h("th", { scope: "col", key: one }, one),
          ),
        ),
      ),
      h(
        "tbody",
        null,
        place.entries.map((one) => row(app, place, one)),
      ),
    ),
    place.more
      ? h(
          "div",
          { class: "buttons" },
          button("Show more", () => {
            place.pages += 1;
            return load(app, place);
          }),
        )
      : null,
  );
}

function row(app, place, one) {
  const path = place.path ? `${place.path}/${one.name}` : one.name;
  const [tone, words, title] = STATES[one.state] ?? ["quiet", "", ""];
  const open =
    one.kind === "folder"
      ? () => go(app, place, path)
      : one.kind === "file"
        ? () => look(app, place, path)
        : null;
  const name = open
    ? h("button", { type: "button", class: "plain", onclick: open }, one.name)
    : h("span", null, one.name);
  return h(
    "tr",
    { key: one.name },
    h("th", { scope: "row" }, h("div", { class: "entry" }, icon(one.kind), name, one.labels.map(labelled))),
    h("td", { "data-label": "State" }, words ? badge(tone, words, title) : null),
    h("td", { "data-label": "Size", class: "number" }, one.kind === "file" ? size(one.size) : ""),
    h("td", { "data-label": "Changed" }, moment(one.modified)),
    h(
      "td",
      { class: "buttons" },
      one.kind === "file" || one.kind === "folder" ? keeping(app, place, one, path) : null,
    ),
  );
}

function labelled(word) {
  return h("span", { key: word }, badge("quiet", word, "A label"));
}

function keeping(app, place, one, path) {
  const done = async (action, said) => {
    await app.act(action, { path }, said);
    await load(app, place);
  };
  if (one.pinned === "yes")
    return button("Unpin", () => done("unpin", `${one.name} may leave this machine when room is needed.`), {
      label: `Unpin ${one.name}`,
      title: "Is always kept on this machine; let it go when room is needed",
    });
  const free = one.kind === "folder" || one.state === "durable";
  return [
    one.pinned === "inherited"
      ? badge("quiet", "pinned", "A folder above it is pinned: always kept on this machine")
      : button("Pin", () => done("pin", `${one.name} is always kept on this machine.`), {
          label: `Pin ${one.name}`,
          title: "Always keep it on this machine",
        }),
    free && one.pinned === "no"
      ? button("Evict", () => done("evict", `${one.name} is fetched again when it is opened.`), {
          label: `Evict ${one.name}`,
          title: "Free the room that it takes on this disk; the clouds keep it",
        })
      : null,
  ];
}

async function look(app, place, path) {
  const facts = await app.attempt(() => ask(about(app.volume.name, "preview"), { path }));
  if (facts) place.preview = { path, ...facts };
  app.redraw();
  reveal("preview");
}

function preview(app, place) {
  if (!place.preview) return null;
  const { path, text, size: bytes, whole } = place.preview;
  const close = () => {
    place.preview = null;
    app.redraw();
  };
  return h(
    "section",
    { class: "card wide", "aria-labelledby": "preview", key: "preview" },
    h(
      "div",
      { class: "card-head" },
      h("h2", { id: "preview" }, path.split("/").at(-1)),
      h(
        "div",
        { class: "buttons" },
        button("Versions", () => below("past", showVersions(app, place, path))),
        button("Close", close, { label: "Close the file" }),
      ),
    ),
    text === null
      ? empty(`${size(bytes)} that are not text.`)
      : h("pre", { class: "text", tabindex: 0 }, text || " "),
    whole || text === null ? null : empty(`Only the beginning of ${size(bytes)} is shown.`),
  );
}
