// What files were before, and what was removed.

import { about, ask } from "./api.js";
import { badge, button, confirm, empty, toast } from "./parts.js";
import { h } from "./vdom.js";
import { count, moment, size } from "./words.js";

/** Show the versions of the file at `path`. */
export function showVersions(app, place, path) {
  return open(app, place, { kind: "versions", path });
}

/** Show what was removed from the folder at `path`. */
export function showRemoved(app, place, path) {
  return open(app, place, { kind: "removed", path });
}

async function open(app, place, wanted) {
  const facts = await app.attempt(() => ask(about(app.volume.name, wanted.kind), { path: wanted.path }));
  if (facts) place.past = { ...wanted, facts };
  app.redraw();
}

/** What is shown of the past, if anything is. */
export function past(app, place) {
  if (!place.past) return null;
  const { kind, path, facts } = place.past;
  const name = path.split("/").at(-1) || app.volume.name;
  const title = kind === "versions" ? `Versions of ${name}` : `Removed from ${name}`;
  const close = () => {
    place.past = null;
    app.redraw();
  };
  const rows =
    kind === "versions"
      ? facts.versions.map((one) => version(app, place, path, one))
      : facts.removed.map((one) => removed(app, place, one));
  return h(
    "section",
    { class: "card wide", "aria-labelledby": "past", key: "past" },
    h(
      "div",
      { class: "card-head" },
      h("h2", { id: "past" }, title),
      button("Close", close, { label: `Close: ${title}` }),
    ),
    rows.length
      ? h("ul", { class: "rows" }, rows)
      : empty(
          kind === "versions" ? "Nothing is known of it." : "Nothing that was removed from here is kept.",
        ),
  );
}

function restored(app, wanted, said) {
  return app.attempt(async () => {
    const { left, left_files } = await ask(about(app.volume.name, "restore"), wanted);
    if (left_files)
      toast(`${left[0].why}. Of ${wanted.path}, ${count(left_files, "file")} cannot be restored.`, "bad");
    else toast(said);
  });
}

function version(app, place, path, one) {
  const restore = async () => {
    if (
      !(await confirm(
        "Restore this version?",
        `${path} becomes what it was at ${moment(one.since, true)}. What is there now is kept as a version, too.`,
        "Restore",
      ))
    )
      return;
    await restored(app, { path, since: one.since }, `${path} is what it was at ${moment(one.since, true)}.`);
    await showVersions(app, place, path);
  };
  return h(
    "li",
    { key: one.version },
    h("span", { class: "name" }, `${moment(one.since, true)}, ${size(one.size)}, by ${one.device}`),
    one.kept_until === null
      ? badge("good", "as it is now")
      : h(
          "span",
          { class: "buttons" },
          h("span", { class: "quiet" }, `kept until ${moment(one.kept_until)}`),
          button("Restore", restore, { label: `Restore the version of ${moment(one.since, true)}` }),
        ),
  );
}

function removed(app, place, one) {
  const at = new Date((one.removed - 1) * 1000).toISOString().replace(/\.\d+Z$/, "Z");
  const restore = async () => {
    await restored(
      app,
      one.kind === "file" ? { path: one.path } : { path: one.path, at },
      `${one.path} is back.`,
    );
    await showRemoved(app, place, place.path);
  };
  return h(
    "li",
    { key: one.path },
    h(
      "span",
      { class: "name" },
      `${one.path}${one.kind === "file" ? `, ${size(one.size)}` : ""}, removed ${moment(one.removed)} by ${one.device}`,
    ),
    h(
      "span",
      { class: "buttons" },
      h("span", { class: "quiet" }, `kept until ${moment(one.kept_until)}`),
      button("Restore", restore, { label: `Restore ${one.path}` }),
    ),
  );
}
