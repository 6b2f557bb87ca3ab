// Where a volume is to be: what hybrisfs mount does.

import { ask } from "./api.js";
import { button, closing, dialog, trouble } from "./parts.js";
import { h } from "./vdom.js";

/** Ask where a volume is to be, and mount it there; resolves to what the daemon says of it, or to null. */
export async function mountVolume(app, name) {
  const suggested = await app.attempt(() => ask("/api/do/suggestions", { name }));
  if (!suggested) return null;
  let mounted = null;
  await dialog(`Mount ${name}`, (here) => {
    if (mounted)
      return [
        h("p", { key: "said" }, `${mounted.name} is at ${mounted.mountpoint}: use it like any folder.`),
        closing(here),
      ];
    const onsubmit = here.submit(async (form) => {
      mounted = await ask("/api/do/mount", { name, directory: form.elements.directory.value.trim() });
    });
    return h(
      "form",
      { key: "form", autocomplete: "off", onsubmit },
      folderField(suggested.mountpoint),
      trouble(here),
      h(
        "div",
        { class: "buttons" },
        button("Later", () => here.close()),
        h("button", { class: "primary", disabled: here.busy }, "Mount"),
      ),
    );
  });
  app.again();
  return mounted;
}

/** The field for the folder at which a volume is to be mounted. */
export function folderField(suggestion) {
  return h(
    "label",
    { key: "directory" },
    h("span", null, "Where shall it be? ", h("small", null, "a folder that is empty or not there yet")),
    h("input", {
      name: "directory",
      required: true,
      value: suggestion,
      spellcheck: "false",
      autocomplete: "off",
    }),
  );
}
