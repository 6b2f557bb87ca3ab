// What is seldom done with a cloud: hybrisfs cloud rename, replace, retain and remove.

import { about, ask } from "./api.js";
import { askForCloud, kept } from "./cloud_forms.js";
import { button, choices, closing, confirm, dialog, facts, notes, trouble } from "./parts.js";
import { h } from "./vdom.js";
import { count } from "./words.js";

const MOST_DAYS = 3650;

/** The buttons for it, behind a word. */
export function changes(app, cloud) {
  const one = (words, work, label) => button(words, () => work(app, cloud), { label: `${label} ${cloud}` });
  return h(
    "details",
    { class: "more" },
    h("summary", { "aria-label": `More for ${cloud}` }, "More"),
    h(
      "div",
      { class: "buttons" },
      one("Rename", renameCloud, "Rename"),
      one("Keep deleted", retain, "Have deleted objects kept by"),
      one("Replace", replace, "Replace"),
      one("Remove", remove, "Remove"),
    ),
  );
}

async function renameCloud(app, cloud) {
  await dialog(`Rename ${cloud}`, (here) => {
    const onsubmit = here.submit(async (form) => {
      const new_name = form.elements.name.value.trim();
      await ask(about(app.volume.name, "do/rename-cloud"), { cloud, new_name });
      here.close(true);
    });
    return h(
      "form",
      { key: "form", autocomplete: "off", onsubmit },
      h(
        "label",
        { key: "name" },
        "Name, on all machines",
        h("input", { name: "name", required: true, spellcheck: "false", autocomplete: "off", value: cloud }),
      ),
      trouble(here),
      choices(here, "Rename"),
    );
  });
  app.again();
}

async function retain(app, cloud) {
  let done = null;
  await dialog(`Have ${cloud} keep what is deleted`, (here) => {
    if (done)
      return [
        h("p", { key: "said" }, `What is deleted or overwritten on ${done.cloud}:`),
        facts(...kept(done.retention)),
        notes([done.note, done.retention?.note].filter(Boolean)),
        closing(here),
      ];
    const onsubmit = here.submit(async (form) => {
      const days = Number(form.elements.days.value);
      done = await ask(about(app.volume.name, "do/retain-cloud"), { cloud, days });
    });
    return h(
      "form",
      { key: "form", onsubmit },
      h(
        "p",
        { key: "help", class: "quiet" },
        "It takes credentials of an administrator of the cloud. What is kept costs what it takes to store it. Repair brings back what somebody has deleted.",
      ),
      h(
        "label",
        { key: "days" },
        "Days (0: not any more)",
        h("input", { type: "number", name: "days", min: 0, max: MOST_DAYS, required: true, value: "30" }),
      ),
      trouble(here),
      choices(here, "Set"),
    );
  });
  app.again();
}

async function replace(app, cloud) {
  await askForCloud(`Replace ${cloud}`, "Replace", async (url, cloud_name, make) => {
    const done = await ask(about(app.volume.name, "do/replace-cloud"), { cloud, url, cloud_name, make });
    return [
      h(
        "p",
        { key: "said" },
        `${done.name} uses the cloud ${done.added} now. ${done.cloud} is being emptied in the background.`,
      ),
      notes(done.warnings),
    ];
  });
  app.again();
}

async function remove(app, cloud) {
  const others = app.volume.clouds.length - 1;
  const explanation = `For a cloud that is lost or not to be trusted: nothing is asked of it any more, nothing is deleted there, and what it held is rebuilt from the other ${count(others, "cloud")}. To move what it holds, drain it instead.`;
  if (await confirm(`Remove ${cloud}?`, explanation, "Remove"))
    await app.act("remove-cloud", { cloud }, `${cloud} is not used any more; the rest is rebuilt.`);
}
