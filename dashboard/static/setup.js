// What an empty machine is led through: what hybrisfs setup asks.

import { ask, Failure, get } from "./api.js";
import { askForCloud, tryPlace } from "./cloud_forms.js";
import { folderField, mountVolume } from "./mounting.js";
import { joinAndMount } from "./devices.js";
import { invite } from "./pairing.js";
import { button, card, closing, confirm, dialog, empty, notes } from "./parts.js";
import { makeKit } from "./recovery.js";
import { recovering } from "./recovering.js";
import { h } from "./vdom.js";
import { count, sentence } from "./words.js";

const USUAL = "home"; // the name of a volume, as the command suggests

/** What is shown while this machine has no volume. */
export function setup(app) {
  const plan = app.memory("setup", {
    name: USUAL,
    folder: null,
    clouds: [],
    f: 1,
    busy: false,
    failure: null,
  });
  if (plan.folder === null) suggest(app, plan);
  return [
    h(
      "p",
      { class: "lead", key: "lead" },
      "This machine has no volume yet. A volume is one folder that all your machines share.",
    ),
    h(
      "div",
      { class: "grid-cards", key: "cards" },
      creation(app, plan),
      card(
        "Join a volume of another machine",
        null,
        h("p", null, "Invite this machine on one that has the volume, and give the code here."),
        h(
          "div",
          { class: "buttons" },
          button("Join a volume", () => joinAndMount(app)),
        ),
      ),
      recovering(app),
    ),
  ];
}

/** Find out where a volume of that name would usually be, and which folders of this disk may play its clouds. */
async function suggest(app, plan) {
  const { name } = plan;
  plan.folder = "";
  try {
    const found = await ask("/api/do/suggestions", { name });
    if (plan.name === name)
      Object.assign(plan, { folder: found.mountpoint, local: found.clouds, failure: null });
  } catch (failure) {
    if (!(failure instanceof Failure)) throw failure;
    if (plan.name === name) Object.assign(plan, { local: null, failure });
  }
  app.redraw();
}

function creation(app, plan) {
  const rename = (event) => {
    plan.name = event.target.value.trim();
    return suggest(app, plan);
  };
  return card(
    "Set up a volume",
    { wide: true },
    h(
      "form",
      { autocomplete: "off", onsubmit: (event) => create(app, plan, event) },
      h(
        "label",
        { key: "name" },
        "What shall it be called?",
        h("input", {
          name: "name",
          required: true,
          value: plan.name,
          spellcheck: "false",
          autocomplete: "off",
          onchange: rename,
        }),
      ),
      folderField(plan.folder),
      clouds(app, plan),
      faults(app, plan),
      plan.failure
        ? h(
            "p",
            { class: "reason", role: "alert", key: "trouble" },
            sentence(plan.failure.message),
            " ",
            plan.failure.advice,
          )
        : null,
      h(
        "div",
        { class: "buttons", key: "create" },
        h(
          "button",
          { class: "primary", disabled: plan.busy || !plan.clouds.length, "aria-busy": plan.busy },
          "Create",
        ),
      ),
    ),
  );
}

function clouds(app, plan) {
  const add = async () => {
    await askForCloud("Add a cloud", "Add", async (url, name, make) => {
      if (plan.clouds.some((one) => one.url === url)) throw new Failure("that one is there already", "", 400);
      await tryPlace(url, null, make);
      plan.clouds.push({ url, name, make });
    });
    app.redraw();
  };
  const remove = (one) => {
    plan.clouds = plan.clouds.filter((other) => other !== one);
    app.redraw();
  };
  const trial = () => {
    plan.clouds = plan.local.map((url) => ({ url, name: null, make: true }));
    app.redraw();
  };
  return h(
    "fieldset",
    { key: "clouds" },
    h("legend", null, "Clouds"),
    h(
      "p",
      { key: "what", class: "quiet" },
      "What you put there is kept, encrypted, on clouds: of three, one may fail; of five, two.",
    ),
    plan.clouds.length
      ? h(
          "ul",
          { class: "rows", key: "list" },
          plan.clouds.map((one) =>
            h(
              "li",
              { key: one.url },
              h("span", { class: "name" }, one.name ? `${one.name}: ${one.url}` : one.url),
              button("Remove", () => remove(one), { label: `Remove ${one.url}` }),
            ),
          ),
        )
      : empty("None yet. To try it out, three folders on this disk can stand in for them."),
    h(
      "div",
      { class: "buttons", key: "add" },
      button("Add a cloud", add),
      plan.clouds.length || !plan.local
        ? null
        : button("Try it out", trial, { title: "Three folders on this disk stand in for clouds" }),
    ),
  );
}

/** How many clouds may fail, where there is a choice. */
const most = (plan) => Math.floor((plan.clouds.length - 1) / 2);

function faults(app, plan) {
  if (most(plan) < 2) return null;
  const choose = (event) => {
    plan.f = Number(event.target.value);
    app.redraw();
  };
  return h(
    "label",
    { key: "faults" },
    `How many of the ${plan.clouds.length} may fail, or be lost, at the same time?`,
    h(
      "select",
      { name: "f", value: String(Math.min(plan.f, most(plan))), onchange: choose },
      Array.from({ length: most(plan) + 1 }, (_, f) => h("option", { key: f, value: String(f) }, String(f))),
    ),
  );
}

async function create(app, plan, event) {
  event.preventDefault();
  const { name, directory } = event.target.elements;
  if (plan.busy || !(await isEnough(plan))) return;
  Object.assign(plan, { busy: true, failure: null });
  app.redraw();
  try {
    const made = await ask("/api/do/create-volume", {
      name: name.value.trim(),
      clouds: plan.clouds.map((one) => (one.name ? `${one.name}=${one.url}` : one.url)),
      f: most(plan) < 2 ? null : Math.min(plan.f, most(plan)),
      make: plan.clouds.some((one) => one.make) || null,
    });
    const where = { name: made.volume.name, directory: directory.value.trim() };
    const mounted =
      (await app.attempt(() => ask("/api/do/mount", where))) ?? (await mountVolume(app, made.volume.name));
    app.chosen = made.volume.name;
    app.volumes = (await get("/api/volumes")).volumes;
    app.redraw();
    await lead(app, made, mounted);
  } catch (failure) {
    if (!(failure instanceof Failure)) throw failure;
    plan.failure = failure;
  } finally {
    plan.busy = false;
    app.again();
    app.redraw();
  }
}

async function isEnough({ clouds: chosen }) {
  if (chosen.length > 2) return true;
  const question = `With ${count(chosen.length, "cloud")} none may fail. Is that all?`;
  return confirm(question, "Of three, one may fail; of five, two.", "Create");
}

/** Say what was made, and lead through what comes then: recovery kit, start at login, another machine. */
async function lead(app, { volume, warnings }, mounted) {
  const { f, k, clouds: all, name } = volume;
  await dialog(`${name} is set up`, (here) => [
    h(
      "p",
      { key: "where" },
      mounted ? `It is at ${mounted.mountpoint}: use it like any folder.` : "It is not mounted.",
    ),
    h(
      "p",
      { key: "kept" },
      `Everything there is kept on ${f + k} of ${count(all.length, "cloud")}; ${f ? `any ${f} may fail` : "none may fail"}.`,
    ),
    notes(warnings),
    closing(here),
  ]);
  await makeKit(app);
  const { offered } = await get("/api/service");
  if (
    offered &&
    (await confirm(
      "Shall it start whenever you log in?",
      "Else it starts with the first command.",
      "Start at login",
    ))
  )
    await app.attempt(() => ask("/api/service", {}));
  if (
    await confirm(
      "Let another machine in now?",
      "You can do that later, in the section “Machines”.",
      "Invite",
    )
  )
    await invite(app);
}
