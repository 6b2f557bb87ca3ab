// What was changed in two places at once: the versions side by side, and which to keep.

import { about, ask } from "./api.js";
import { differences } from "./diff.js";
import { button, card, choices, closing, confirm, dialog, empty, icon, toast, trouble } from "./parts.js";
import { h } from "./vdom.js";
import { size } from "./words.js";

export const conflicts = {
  id: "conflicts",
  title: "Conflicts",
  needs: (app) => [{ name: `conflicts?first=${first(app).value}`, every: 3 }],
  view(app) {
    const known = app.data[`conflicts?first=${first(app).value}`];
    if (known?.failure) return empty(known.failure.message);
    if (!known) return null;
    if (!known.total && (known.keys.length || known.moved.length))
      return [keys(known.keys), moved(known.moved)];
    if (!known.total)
      return h(
        "div",
        { class: "hero good" },
        icon("good", "hero-icon"),
        h(
          "div",
          null,
          h("p", { class: "sentence" }, "No conflicts."),
          h(
            "p",
            { class: "meaning" },
            "When two machines change a file at the same time, both versions are kept and shown here.",
          ),
        ),
      );
    return [
      h(
        "p",
        { class: "lead", key: "lead" },
        "Two machines changed these at the same time. Nothing is lost: all versions are in the folder. Choose when you like.",
      ),
      groups(known.conflicts).map((one) => group(app, one)),
      pages(app, known),
      keys(known.keys),
      moved(known.moved),
    ];
  },
};

const first = (app) => app.memory("first", { value: 0 });

/** Keys of the key-value store with several values. */
function keys(found) {
  if (!found.length) return null;
  return card(
    "Keys with several values",
    { id: "keys" },
    h(
      "p",
      { class: "quiet" },
      "Machines have written these without knowing of each other. All values are kept until one is written again; ",
      h("code", null, "hybrisfs kv get --all"),
      " shows them.",
    ),
    h(
      "ul",
      { class: "rows" },
      found.map((one) =>
        h("li", { key: `${one.container}/${one.key}` }, `${one.container}/${one.key}: ${one.values} values`),
      ),
    ),
  );
}

/** Containers that have left the log while machines that did not know of it wrote to them. */
function moved(found) {
  if (!found.length) return null;
  const late = (one) => `${one.container}: ${one.late} keys were written in the log after it had left.`;
  const twice = (one) => `${one.container} was moved to two places at the same time, and is in both.`;
  const lines = found.flatMap((one) => [
    ...(one.late ? [late(one)] : []),
    ...(one.twice ? [twice(one)] : []),
  ]);
  return card(
    "Containers that were moved",
    { id: "moved" },
    h(
      "p",
      { class: "quiet" },
      "Nothing is lost. ",
      h("code", null, "hybrisfs kv migrate"),
      " to where a container is brings late keys there. Of two, put into one what you need of the other, and drop that one.",
    ),
    h(
      "ul",
      { class: "rows" },
      lines.map((line) => h("li", { key: line }, line)),
    ),
  );
}

/** The versions by the name that they compete for. */
function groups(found) {
  const byName = new Map();
  for (const one of found) byName.set(one.of, [...(byName.get(one.of) ?? []), one]);
  return [...byName].map(([of, versions]) => ({ of, versions }));
}

function pages(app, known) {
  const at = first(app);
  if (known.total <= known.conflicts.length) return null;
  const turn = (by) => {
    at.value = Math.max(0, at.value + by);
    app.redraw();
  };
  return h(
    "div",
    { class: "buttons", key: "pages" },
    button("Earlier", () => turn(-100), { disabled: at.value === 0 }),
    button("Later", () => turn(100), { disabled: at.value + known.conflicts.length >= known.total }),
  );
}

function group(app, { of, versions }) {
  const shown = app.memory(`shown ${of}`, { open: false, texts: null });
  const toggle = () => {
    shown.open = !shown.open;
    if (shown.open) load(app, of, versions, shown);
    app.redraw();
  };
  const name = of.split("/").at(-1);
  const settle = async (action, path, said, question) => {
    if (question && !(await confirm(question[0], question[1], "Keep only this"))) return;
    await app.act(action, { path }, said);
  };
  const keep = (path, words) =>
    button(
      "Keep only this",
      () =>
        settle("keep", path, `${name} is settled.`, [
          `Keep only ${words}?`,
          "The other versions are deleted on all machines.",
        ]),
      { kind: "primary", label: `Keep only ${words} of ${name}` },
    );
  const columns = [
    { path: of, title: "Under the name", note: name },
    ...versions.map((one) => ({
      path: one.path,
      title: one.kind === "version" ? "The other version" : "The other file",
      note: `${one.path.split("/").at(-1)}, ${size(one.size)}, changed ${one.modified}`,
    })),
  ];
  return card(
    of,
    {
      id: `conflict-${of}`,
      wide: true,
      aside: h(
        "div",
        { class: "buttons" },
        h(
          "button",
          {
            type: "button",
            "aria-expanded": String(shown.open),
            "aria-label": `Compare the versions of ${name}`,
            onclick: toggle,
          },
          shown.open ? "Hide" : "Compare",
        ),
        button("Merge", () => merge(app, of), { label: `Merge the versions of ${name}` }),
        button(
          "Keep both",
          () => settle("keep-all", versions[0].path, `All versions of ${name} are files of their own now.`),
          { label: `Keep both versions of ${name}` },
        ),
      ),
    },
    shown.open
      ? h(
          "div",
          { class: "versions" },
          columns.map((one, index) =>
            h(
              "div",
              { class: "version", key: one.path },
              h("h3", null, one.title),
              h("p", { class: "quiet" }, one.note),
              text(shown, index),
              h("div", { class: "buttons" }, keep(one.path, one.title.toLowerCase())),
            ),
          ),
        )
      : h("p", { class: "quiet" }, versions.map((one) => one.path.split("/").at(-1)).join(", ")),
  );
}

async function load(app, of, versions, shown) {
  const paths = [of, ...versions.map((one) => one.path)];
  shown.texts = await Promise.all(
    paths.map((path) => ask(about(app.volume.name, "preview"), { path }).catch((failure) => ({ failure }))),
  );
  app.redraw();
}

/** A version's text; lines that the one under the name (or, there, the first other one) lacks are marked. */
function text(shown, index) {
  const mine = shown.texts?.[index];
  if (!mine) return empty("Looking …");
  if (mine.failure) return empty(mine.failure.message);
  if (mine.text === null) return empty(`${size(mine.size)} that are not text.`);
  const other = shown.texts[index === 0 ? 1 : 0];
  const lines = differences(mine.text, other?.text ?? null);
  return h(
    "pre",
    { class: "text", tabindex: 0 },
    lines.map(([line, differs], number) => (differs ? h("mark", { key: number }, `${line}\n`) : `${line}\n`)),
    mine.whole ? null : "…",
  );
}

/** Show what hybrisfs conflicts merge would do, and do it when a person says so. */
async function merge(app, path) {
  const url = about(app.volume.name, "merge");
  const found = await app.attempt(() => ask(url, { path }));
  if (!found) return;
  const done = await dialog(`Merge ${path.split("/").at(-1)}`, (here) => {
    if (!found.merged)
      return [
        h("p", { key: "why" }, `${found.path} is not merged without you: ${found.why}.`),
        h(
          "p",
          { key: "how" },
          "This opens a program where you decide: ",
          h("code", null, "hybrisfs conflicts merge PATH"),
        ),
        closing(here),
      ];
    const onsubmit = here.submit(async () => {
      await ask(url, { path, mark: found.mark });
      here.close(true);
    });
    return h(
      "form",
      { key: "form", onsubmit },
      h(
        "p",
        { key: "what" },
        `One file is made of ${found.versions.length} versions, with the changes of all. Each of them stays as an earlier version. This is changed in the one under the name:`,
      ),
      change(found),
      trouble(here),
      choices(here, "Merge"),
    );
  });
  if (done) toast(`Merged ${found.versions.length} versions of ${path}.`);
  app.again();
}

/** The lines that are added and removed. */
function change({ difference, more }) {
  if (difference === null) return empty("The text is too large to show what is changed.");
  return h(
    "pre",
    { class: "text", key: "change", role: "region", "aria-label": "What is changed", tabindex: 0 },
    difference.map((line, number) =>
      h(line.startsWith("+") ? "ins" : line.startsWith("-") ? "del" : "span", { key: number }, `${line}\n`),
    ),
    more ? "…" : null,
  );
}
