// What is pinned: what hybrisfs pin lists.

import { about, get } from "./api.js";
import { badge, button, empty } from "./parts.js";
import { h } from "./vdom.js";
import { count, size } from "./words.js";

/** Show what is pinned of the volume. */
export async function showPins(app, place) {
  const found = await app.attempt(() => get(about(app.volume.name, "pins")));
  if (found) place.pins = found.pins;
  app.redraw();
}

/** What is shown of it, if anything is. */
export function pins(app, place) {
  if (!place.pins) return null;
  const close = () => {
    place.pins = null;
    app.redraw();
  };
  return h(
    "section",
    { class: "card wide", "aria-labelledby": "pins", key: "pins" },
    h(
      "div",
      { class: "card-head" },
      h("h2", { id: "pins" }, "Pinned: always kept on this machine"),
      button("Close", close, { label: "Close: Pinned" }),
    ),
    place.pins.length
      ? h(
          "ul",
          { class: "rows" },
          place.pins.map((one) => row(app, place, one)),
        )
      : empty("Nothing is pinned. “Pin” beside a file or folder keeps it here."),
  );
}

function row(app, place, one) {
  const path = one.inside || app.volume.name;
  const unpin = async () => {
    await app.act("unpin", { path: one.inside }, `${path} may leave this machine when room is needed.`);
    await showPins(app, place);
  };
  return h(
    "li",
    { key: one.inside },
    h("span", { class: "name" }, `${path}: ${count(one.files, "file")}, ${size(one.bytes)}`),
    h(
      "span",
      { class: "buttons" },
      one.missing_bytes
        ? badge("busy", `${size(one.missing_bytes)} still to come`)
        : badge("good", "all here"),
      button("Unpin", unpin, { label: `Unpin ${path}` }),
    ),
  );
}
