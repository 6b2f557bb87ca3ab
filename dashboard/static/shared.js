// Files that are shared by links. The links are secrets, which this page never gets: hybrisfs share list has
// them.

import { about, get } from "./api.js";
import { badge, button, confirm, empty } from "./parts.js";
import { h } from "./vdom.js";
import { moment, size } from "./words.js";

/** Show what is shared of the volume. */
export async function showShared(app, place) {
  const facts = await app.attempt(() => get(about(app.volume.name, "shared")));
  if (facts) place.shared = facts;
  app.redraw();
}

/** What is shown of it, if anything is. */
export function shared(app, place) {
  if (!place.shared) return null;
  const { parcels, silent } = place.shared;
  const close = () => {
    place.shared = null;
    app.redraw();
  };
  return h(
    "section",
    { class: "card wide", "aria-labelledby": "shared", key: "shared" },
    h(
      "div",
      { class: "card-head" },
      h("h2", { id: "shared" }, "Shared by links"),
      button("Close", close, { label: "Close: Shared by links" }),
    ),
    parcels.length
      ? h(
          "ul",
          { class: "rows" },
          parcels.map((one) => row(app, place, one)),
        )
      : empty("Nothing is shared. hybrisfs share FILE makes a link for somebody without the program."),
    silent.length ? empty(`Not asked, as it does not answer: ${silent.join(", ")}.`) : null,
  );
}

function row(app, place, one) {
  const revoke = async () => {
    const explanation = "The link leads nowhere then. Who has opened it before has the file.";
    if (!(await confirm(`Share ${one.path} no more?`, explanation, "Revoke"))) return;
    await app.act("revoke", { which: one.id }, `${one.path} is shared no more.`);
    await showShared(app, place);
  };
  return h(
    "li",
    { key: one.id },
    h("span", { class: "name" }, `${one.path}, ${size(one.size)}, by ${one.device}, on ${one.cloud}`),
    h(
      "span",
      { class: "buttons" },
      one.whole
        ? h("span", { class: "quiet" }, `until ${moment(one.expires, true)}`)
        : badge("wary", "not whole", "It is being uploaded, or that was broken off"),
      button("Revoke", revoke, { label: `Revoke the link to ${one.path}` }),
    ),
  );
}
