// A folder as it was at a moment, and putting it back: what hybrisfs versions restore --at does.

import { about, ask, Failure, get } from "./api.js";
import { badge, button, choices, closing, dialog, empty, trouble } from "./parts.js";
import { h } from "./vdom.js";
import { count, moment, size } from "./words.js";

const DEEDS = { made: ["good", "made"], changed: ["busy", "changed"], left: ["wary", "cannot be restored"] };

/** A moment as people say it. */
const when = (at) => moment(Date.parse(at) / 1000, /:\d\d:\d\d/.test(at));

/** Show of which moments the folder is kept, and what was in it at the latest. */
export async function showEarlier(app, place) {
  const found = await app.attempt(() => get(about(app.volume.name, "moments")));
  if (!found) return;
  place.earlier = { moments: found.moments, keep: found.keep, at: found.moments[0], path: place.path };
  await turn(app, place, {});
}

/** Show another moment, folder or page. */
async function turn(app, place, wanted) {
  const then = Object.assign(place.earlier, { entries: [], more: false }, wanted);
  if (then.at) await load(app, then);
  else app.redraw();
}

async function load(app, then) {
  const { at, path, entries } = then;
  const body = { path, at, after: entries.at(-1)?.name ?? "" };
  try {
    const page = await ask(about(app.volume.name, "folder"), body);
    if (then.at === at && then.path === path)
      Object.assign(then, { entries: entries.concat(page.entries), more: page.more, failure: null });
  } catch (failure) {
    if (!(failure instanceof Failure)) throw failure;
    Object.assign(then, { failure });
  }
  app.redraw();
}

/** What is shown of it, if anything is. */
export function earlier(app, place) {
  const then = place.earlier;
  if (!then) return null;
  const close = () => {
    place.earlier = null;
    app.redraw();
  };
  return h(
    "section",
    { class: "card wide", "aria-labelledby": "earlier", key: "earlier" },
    h(
      "div",
      { class: "card-head" },
      h("h2", { id: "earlier" }, `${then.path || app.volume.name} as it was`),
      button("Close", close, { label: "Close: as it was" }),
    ),
    then.at
      ? [chooser(app, place), then.failure ? empty(then.failure.message) : table(app, place)]
      : empty(`No moment is kept: ${then.keep} versions are.`),
  );
}

function chooser(app, place) {
  const { moments, at, path } = place.earlier;
  const above = path.split("/").slice(0, -1).join("/");
  return h(
    "div",
    { class: "filter", key: "chooser" },
    h(
      "label",
      null,
      "At this moment",
      h(
        "select",
        { value: at, onchange: (event) => turn(app, place, { at: event.target.value }) },
        moments.map((one) => h("option", { key: one, value: one }, when(one))),
      ),
    ),
    path ? button("Up", () => turn(app, place, { path: above }), { label: "To the folder above" }) : null,
    button(path ? "Restore this folder" : "Restore the whole volume", () => restore(app, path, at), {
      kind: "primary",
    }),
  );
}

function table(app, place) {
  const { entries, more, at, path } = place.earlier;
  if (!entries.length) return empty("Nothing was in it then.");
  const inside = (name) => (path ? `${path}/${name}` : name);
  return [
    h(
      "ul",
      { class: "rows", key: "entries" },
      entries.map((one) =>
        h(
          "li",
          { key: one.name },
          one.kind === "folder"
            ? h(
                "button",
                {
                  type: "button",
                  class: "plain name",
                  onclick: () => turn(app, place, { path: inside(one.name) }),
                },
                `${one.name}/`,
              )
            : h("span", { class: "name" }, one.name),
          h(
            "span",
            { class: "buttons" },
            one.kind === "file"
              ? h("span", { class: "quiet" }, `${size(one.size)}, ${moment(one.modified)}`)
              : null,
            button("Restore", () => restore(app, inside(one.name), at), {
              label: `Restore ${one.name} as it was`,
            }),
          ),
        ),
      ),
    ),
    more
      ? h(
          "div",
          { class: "buttons", key: "more" },
          button("Show more", () => load(app, place.earlier)),
        )
      : null,
  ];
}

/** Show what restoring would change, and do it when a person says so; for the whole volume, by its name. */
async function restore(app, path, at) {
  const { name } = app.volume;
  const preview = await app.attempt(() => ask(about(name, "restore-preview"), { path, at }));
  if (!preview) return;
  let restored = null;
  await dialog(`Restore ${path || name} as it was ${when(at)}`, (here) => {
    if (restored) return [outcome(restored), closing(here)];
    if (!preview.changes.length)
      return [h("p", { key: "same" }, "All that was there then is as it was."), closing(here)];
    const onsubmit = here.submit(async (form) => {
      restored = await ask(about(name, "restore"), { path, at, confirm: form.elements.confirm?.value });
    });
    return h(
      "form",
      { key: "form", autocomplete: "off", onsubmit },
      said(preview),
      path
        ? null
        : h(
            "label",
            { key: "confirm" },
            "Type the name of the volume to restore all of it",
            h("input", { name: "confirm", required: true, spellcheck: "false", autocomplete: "off" }),
          ),
      trouble(here),
      choices(here, "Restore"),
    );
  });
  app.again();
}

function said({ changes, made, changed, left, same }) {
  const more = made + changed + left - changes.filter((one) => one.kind !== "folder").length;
  return [
    h(
      "p",
      { key: "counts" },
      `Restoring would make ${count(made, "file")}, change ${changed}, and leave ${same} as they are. What has come since stays. What is there now is a version afterwards, and nothing is uploaded.`,
    ),
    left ? h("p", { key: "left", class: "reason" }, `${count(left, "file")} cannot be restored.`) : null,
    h(
      "ul",
      { class: "rows changes", key: "changes", role: "list", "aria-label": "What would change", tabindex: 0 },
      changes.map((one) =>
        h(
          "li",
          { key: one.path },
          h(
            "span",
            { class: "name" },
            one.kind === "folder" ? `${one.path}/` : `${one.path}, ${size(one.size)}`,
          ),
          badge(...DEEDS[one.what], one.why || undefined),
        ),
      ),
      more > 0
        ? h("li", { key: "more" }, h("span", { class: "quiet" }, `and ${count(more, "other")}`))
        : null,
    ),
  ];
}

function outcome({ files, left, left_files }) {
  const more = left_files - left.length;
  return [
    h("p", { key: "files" }, `Restored ${count(files, "file")}.`),
    left.map((one) => h("p", { key: one.path, class: "reason" }, `${one.why}.`)),
    more > 0 ? h("p", { key: "more", class: "reason" }, `Nor can ${count(more, "other")}.`) : null,
  ];
}
