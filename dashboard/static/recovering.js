// Bringing back a volume whose machines are lost: what hybrisfs recover does. The passphrase stands in a field
// of a dialog and in the body of one request, and nowhere else on the page.

import { ask, Failure, get } from "./api.js";
import { askForCloud } from "./cloud_forms.js";
import { mountVolume } from "./mounting.js";
import { button, card, choices, closing, dialog, empty, field, notes, trouble } from "./parts.js";
import { h } from "./vdom.js";
import { list } from "./words.js";

const EVERY = 400; // milliseconds between looks at how it goes

/** The card for it, while this machine has no volume. */
export function recovering(app) {
  const plan = app.memory("recovering", { clouds: [] });
  const add = async () => {
    await askForCloud("A cloud of the volume", "Add", async (url) => {
      if (plan.clouds.includes(url)) throw new Failure("that one is there already", "", 400);
      plan.clouds.push(url);
    });
    app.redraw();
  };
  const remove = (url) => {
    plan.clouds = plan.clouds.filter((one) => one !== url);
    app.redraw();
  };
  return card(
    "Bring back a volume whose machines are lost",
    null,
    h("p", { key: "what" }, "With the passphrase of its recovery kit, and the clouds that you know."),
    plan.clouds.length
      ? h(
          "ul",
          { class: "rows", key: "list" },
          plan.clouds.map((url) =>
            h(
              "li",
              { key: url },
              h("span", { class: "name" }, url),
              button("Remove", () => remove(url), { label: `Remove ${url} from those to recover from` }),
            ),
          ),
        )
      : empty("No cloud is named yet. One is enough to find the others; name all that you know."),
    h(
      "div",
      { class: "buttons", key: "buttons" },
      button("Name a cloud", add),
      plan.clouds.length ? button("Recover", () => recover(app, plan), { kind: "primary" }) : null,
    ),
  );
}

async function recover(app, plan) {
  const job = { id: null, stage: "", result: null, over: false };
  await dialog("Recover a volume", (here) => {
    if (job.result) return [said(job.result), closing(here)];
    if (job.id) return h("p", { key: "doing", role: "status", class: "quiet" }, `${job.stage || "Looking"} …`);
    const onsubmit = here.submit(async (form) => {
      const given = (name) => form.elements[name].value.trim() || null;
      const body = { kind: "recover", volume: "", clouds: plan.clouds, passphrase: form.elements.passphrase.value };
      const names = { own_name: given("own_name"), as_name: given("as_name") };
      const incomplete = form.elements.incomplete.checked;
      ({ id: job.id } = await ask("/api/jobs", { ...body, ...names, incomplete }));
      await watch(here, job);
    });
    return h(
      "form",
      { key: "form", autocomplete: "off", onsubmit },
      fields(),
      trouble(here),
      choices(here, "Recover"),
    );
  });
  job.over = true;
  if (job.id) await ask(`/api/jobs/${job.id}/stop`, {}).catch(() => {}); // the server has ended: so has the job
  if (!job.result) return;
  app.chosen = job.result.volume.name;
  await mountVolume(app, app.chosen);
  app.volumes = (await get("/api/volumes")).volumes;
  app.again();
}

/** Look how it goes until it is done. Throws a Failure when it cannot be done. */
async function watch(here, job) {
  while (!job.over) {
    here.redraw();
    const found = (await get("/api/jobs")).jobs.find((one) => one.id === job.id);
    job.stage = found?.stage ?? "";
    if (found?.state === "running") {
      await new Promise((resolve) => setTimeout(resolve, EVERY));
      continue;
    }
    job.id = null;
    if (found?.state !== "done") throw new Failure(...(found?.error ?? "it was stopped").split("\n"), 409);
    job.result = found.result;
    return;
  }
}

function fields() {
  return [
    h("input", { key: "of", hidden: true, autocomplete: "username", value: "recovery kit" }),
    field("passphrase", "The passphrase of the recovery kit", "", { required: true, type: "password" }),
    field("own_name", "Name of this machine", "its host name, if left out"),
    field("as_name", "Name of the volume here", "as it was, if left out"),
    h(
      "label",
      { class: "check", key: "incomplete" },
      h("input", { type: "checkbox", name: "incomplete" }),
      "Go on when more clouds are missing than the volume can do without",
    ),
  ];
}

function said({ volume, missing, agreed, few_named }) {
  return [
    h("p", { key: "back" }, `${volume.name} is on this machine again. What it holds comes in the background.`),
    notes([
      missing.length ? `not reached: ${list(missing)}` : "",
      agreed ? "" : "too few clouds have the same recovery kit: compare what you find with what you expect",
      agreed && few_named
        ? "only the kit says that the other clouds belong to the volume: look whether the files are those that you expect"
        : "",
    ].filter(Boolean)),
  ];
}
