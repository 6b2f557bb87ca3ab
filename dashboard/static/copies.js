// On how many machines files and folders are to be: what hybrisfs copies shows and sets.

import { badge, button, empty } from "./parts.js";
import { h } from "./vdom.js";
import { count, size } from "./words.js";

const MOST = 32;

/** Show what is to be on several machines, and a form for what is in this folder. */
export function showCopies(app, place) {
  place.copies = true;
  app.redraw();
}

/** What is shown of it, if anything is. */
export function copies(app, place) {
  if (!place.copies) return null;
  const close = () => {
    place.copies = false;
    app.redraw();
  };
  const asked = app.volume.copies ?? [];
  return h(
    "section",
    { class: "card wide", "aria-labelledby": "copies", key: "copies" },
    h(
      "div",
      { class: "card-head" },
      h("h2", { id: "copies" }, "Copies on several machines"),
      button("Close", close, { label: "Close: Copies on several machines" }),
    ),
    asked.length
      ? h(
          "ul",
          { class: "rows" },
          asked.map((one) => row(app, one)),
        )
      : empty("Nothing is to be on several machines yet. The clouds have everything in any case."),
    form(app, place),
  );
}

function row(app, one) {
  const path = one.inside || app.volume.name;
  const stop = () =>
    app.act("copies", { path: one.inside, copies: 0 }, `${path} need not be on several machines any more.`);
  const on = one.on.length ? `: ${one.on.join(", ")}` : "";
  const coming = one.fetching.length ? `; ${one.fetching.join(", ")} fetching it` : "";
  return h(
    "li",
    { key: one.inside },
    h("span", { class: "name" }, `${path}, ${size(one.bytes)}${on}${coming}`),
    h(
      "span",
      { class: "buttons" },
      badge(one.on.length < one.copies ? "wary" : "good", `${one.on.length} of ${one.copies}`),
      button("Stop", stop, { label: `Ask for no copies of ${path}` }),
    ),
  );
}

function form(app, place) {
  const inside = (name) => (place.path ? `${place.path}/${name}` : name);
  const choices = [
    [place.path, place.path ? "this folder" : "everything"],
    ...(place.entries ?? [])
      .filter((one) => one.kind === "file" || one.kind === "folder")
      .map((one) => [inside(one.name), one.name]),
  ];
  const save = async (event) => {
    event.preventDefault();
    const { path, number } = event.target.elements;
    const wanted = Number(number.value);
    const words = `${path.value || app.volume.name} is to be on at least ${count(wanted, "machine")}.`;
    await app.act("copies", { path: path.value, copies: wanted }, words);
  };
  return h(
    "form",
    { onsubmit: save, class: "filter", key: "ask" },
    h(
      "label",
      null,
      h("span", null, "Keep"),
      h(
        "select",
        { name: "path" },
        choices.map(([path, words]) => h("option", { key: path, value: path }, words)),
      ),
    ),
    h(
      "label",
      null,
      h("span", null, "on at least so many machines"),
      h("input", { type: "number", name: "number", min: 1, max: MOST, value: "2", required: true }),
    ),
    h("button", { class: "primary" }, "Keep"),
  );
}
