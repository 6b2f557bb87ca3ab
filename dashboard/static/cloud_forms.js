// What is done with clouds: hybrisfs cloud add, login, test and drain. A secret stands in a field of a dialog
// and in the body of one request, and nowhere else on the page.

import { about, ask, Failure, get } from "./api.js";
import { choices, closing, confirm, dialog, facts, notes, trouble } from "./parts.js";
import { h } from "./vdom.js";
import { count, latency } from "./words.js";

const LARGEST = 16384; // characters of a secret

/** Whether a cloud is a folder of this disk, which takes no secrets. */
export const isFolder = (url) => url.startsWith("file:");

/** Have the volume use one more cloud. */
export async function addCloud(app) {
  const { name: volume } = app.volume;
  await askForCloud("Add a cloud", "Add", async (url, cloud_name, make) => {
    const added = await ask(about(volume, "do/add-cloud"), { url, cloud_name, make });
    return [
      h("p", { key: "said" }, `${added.name} uses the cloud ${added.cloud} now.`),
      isFolder(url) ? null : h("p", { key: "others" }, "Other machines need secrets of their own for it."),
      notes(added.warnings),
    ];
  });
  app.again();
}

/**
 * Ask a person for the URL of a cloud, what it is to be called, and its secrets if it has none yet; then try
 * it and `use(url, name, make)` it, and show what that returns, unless it is nothing. Resolves to whether that
 * was done.
 */
export async function askForCloud(title, yes, use) {
  const { kinds } = await get("/api/kinds");
  const typed = { url: "", name: null, make: null };
  let place = null; // what the cloud wants to know
  let done = null;
  const finish = async (here) => {
    done = await use(typed.url, typed.name, typed.make);
    place = null;
    if (!done) here.close(true);
  };
  const answered = await dialog(title, (here) => {
    if (done) return [done, closing(here)];
    if (place)
      return h(
        "form",
        {
          key: "secrets",
          autocomplete: "off",
          onsubmit: here.submit(async (form) => {
            await tryPlace(typed.url, await secretsIn(form, place.secrets), typed.make);
            await finish(here);
          }),
        },
        secretFields(place),
        trouble(here),
        choices(here, yes),
      );
    const onsubmit = here.submit(async (form) => {
      typed.url = form.elements.url.value.trim();
      typed.name = form.elements.name.value.trim() || null;
      typed.make = form.elements.make?.checked || null;
      const wanted = await ask("/api/do/place-secrets", { url: typed.url });
      if (wanted.secrets.length && !wanted.known) place = wanted;
      else await finish(here);
    });
    return h(
      "form",
      { key: "address", autocomplete: "off", onsubmit },
      addressFields(here, kinds, typed),
      trouble(here),
      choices(here, yes),
    );
  });
  return Boolean(done) || answered === true;
}

function addressFields(here, kinds, typed) {
  const write = (event) => {
    typed.url = event.target.value;
    here.redraw();
  };
  return [
    h(
      "label",
      { key: "url" },
      "URL",
      h("input", {
        name: "url",
        required: true,
        spellcheck: "false",
        autocomplete: "off",
        "aria-describedby": "kinds",
        oninput: write,
      }),
    ),
    h(
      "dl",
      { id: "kinds", class: "kinds", key: "kinds" },
      kinds.map((one) =>
        h("div", { key: one.form }, h("dt", null, h("code", null, one.form)), h("dd", null, one.what)),
      ),
    ),
    h(
      "label",
      { key: "name" },
      h("span", null, "Name ", h("small", null, "the end of the URL, if left out")),
      h("input", { name: "name", spellcheck: "false", autocomplete: "off" }),
    ),
    isFolder(typed.url)
      ? h(
          "label",
          { class: "check", key: "make" },
          h("input", { type: "checkbox", name: "make" }),
          "Make the folder also when its parent is not there, or no disk is mounted",
        )
      : null,
  ];
}

/** Give this machine the secrets of a cloud. */
export async function logIn(app, url) {
  const place = await app.attempt(() => ask("/api/do/place-secrets", { url }));
  if (!place) return;
  if (!place.secrets.length) {
    await dialog(`Log in to ${url}`, (here) => [
      h("p", { key: "why" }, `It takes no secrets${place.logins ? `: ${place.logins}` : ""}.`),
      closing(here),
    ]);
    return;
  }
  let tried = null;
  await dialog(`Log in to ${url}`, (here) => {
    if (tried) return [outcome(tried), closing(here)];
    const onsubmit = here.submit(async (form) => {
      const secrets = await secretsIn(form, place.secrets);
      if (!secrets) throw new Failure("nothing was given", "", 400);
      tried = await tryPlace(url, secrets, null);
    });
    return h(
      "form",
      { key: "secrets", autocomplete: "off", onsubmit },
      secretFields(place),
      trouble(here),
      choices(here, "Log in"),
    );
  });
  app.again();
}

/** Put, get and delete a small object at a place, with these secrets or those that there are. */
export const tryPlace = (url, secrets, make) => ask("/api/do/place-try", { url, secrets, make });

function secretFields({ secrets }) {
  return [
    h(
      "p",
      { key: "help", class: "quiet" },
      "They are tried out, and kept on this machine, where only you can read them, if the cloud accepts them. Leave empty what does not apply.",
    ),
    secrets.map((one) => [
      h(
        "label",
        { key: one.name },
        one.label,
        h("input", {
          type: one.hidden ? "password" : "text",
          name: `secret-${one.name}`,
          spellcheck: "false",
          autocomplete: "off",
        }),
      ),
      one.hidden
        ? h(
            "details",
            { key: `file-${one.name}` },
            h("summary", null, "Take it from a file"),
            h("input", { type: "file", name: `file-${one.name}`, "aria-label": `File with: ${one.label}` }),
          )
        : null,
    ]),
  ];
}

/** What was typed, or is in the chosen files, by name; null when there is nothing. */
async function secretsIn(form, wanted) {
  const given = {};
  for (const { name, label } of wanted) {
    const file = form.elements[`file-${name}`]?.files[0];
    if (file && file.size > LARGEST)
      throw new Failure(`${label}: the file is too large for a secret`, "", 400);
    const text = file ? await file.text() : form.elements[`secret-${name}`].value;
    if (text) given[name] = text;
  }
  return Object.keys(given).length ? given : null;
}

/** Put, get and delete a small object on a cloud. */
export async function testCloud(app, cloud) {
  const tried = await app.attempt(() => ask(about(app.volume.name, "do/test-cloud"), { cloud }));
  if (tried) await dialog(`Test ${cloud}`, (here) => [outcome(tried), closing(here)]);
}

function outcome({ cloud, seconds, retention, warnings }) {
  return [
    h("p", { key: "works" }, `${cloud} works:`),
    facts(...Object.entries(seconds).map(([what, took]) => [what, latency(took)]), ...kept(retention)),
    retention && !retention.deletes
      ? h(
          "p",
          { key: "deletes" },
          "This machine may not delete: what is not needed any more is left to another that may.",
        )
      : null,
    notes([retention?.note].filter(Boolean)),
    notes(warnings),
  ];
}

/** What a test has found of deleted objects, as names and values. */
export function kept(retention) {
  if (!retention) return [];
  const { keeps, days, destructible } = retention;
  const how = days === null ? "yes" : `for ${count(days, "day")}`;
  const harm = { true: "yes, and so could a thief of it", false: "no", null: "unknown" };
  return [
    ["keeps deleted objects", keeps === false ? "no" : keeps ? how : "unknown"],
    keeps === false ? null : ["this machine could destroy them", harm[destructible]],
  ];
}

/** Move all that a cloud holds to the other clouds, then use it no more. */
export async function drainCloud(app, cloud) {
  const explanation =
    "All that it holds is moved to the other clouds, then it is used no more. It gets nothing new from now on. A few small objects stay, which lead machines that are off now to the other clouds.";
  if (await confirm(`Drain ${cloud}?`, explanation, "Drain"))
    await app.act("drain-cloud", { cloud }, `${cloud} is being emptied in the background.`);
}
