// Letting a machine in, and being let in: what hybrisfs device invite and join do. The code stands in a dialog
// for as long as it is open.

import { about, ask, Failure, get } from "./api.js";
import { button, choices, closing, dialog, field, trouble } from "./parts.js";
import { h } from "./vdom.js";
import { moment } from "./words.js";

const EVERY = 400; // milliseconds between looks at a pairing
const VALID = { 900: "a quarter of an hour", 3600: "an hour", 86400: "a day" }; // seconds
const ROLES = {
  full: "all that this machine may",
  contributor: "change what is in some folders, and read everything",
  reader: "only read",
};

/** Let another machine into the volume. */
export async function invite(app) {
  const { name: volume } = app.volume;
  const asked = { role: "full" };
  const job = pairing();
  await dialog("Let another machine in", (here) => {
    if (job.result) return [h("p", { key: "said" }, admitted(job.result, asked)), closing(here)];
    if (job.id) return job.said.question ? comparing(here, job) : waiting(here, job, code(job.said));
    const onsubmit = here.submit(async (form) => {
      asked.folders = lines(form.elements.folders?.value);
      const { credentials, valid } = form.elements;
      const wanted = { role: asked.role, with_credentials: credentials.checked, valid: Number(valid.value) };
      if (asked.role === "contributor") wanted.folders = asked.folders;
      await job.begin(here, { kind: "invite", volume, ...wanted });
    });
    return h(
      "form",
      { key: "form", onsubmit },
      roleFields(here, asked),
      trouble(here),
      choices(here, "Invite"),
    );
  });
  await job.end();
  app.again();
}

const lines = (text) =>
  (text ?? "")
    .split("\n")
    .map((line) => line.trim())
    .filter(Boolean);

function admitted({ device }, { role, folders }) {
  const only = { reader: ", and only reads", contributor: `, and changes only ${folders?.join(", ")}` };
  return `${device} belongs to the volume now${only[role] ?? ""}.`;
}

function roleFields(here, asked) {
  const choose = (event) => {
    asked.role = event.target.value;
    here.redraw();
  };
  return [
    h(
      "label",
      { key: "role" },
      "What it may do",
      h(
        "select",
        { name: "role", value: asked.role, onchange: choose },
        Object.entries(ROLES).map(([value, words]) => h("option", { key: value, value }, words)),
      ),
    ),
    asked.role === "contributor"
      ? h(
          "label",
          { key: "folders" },
          "Folders that it may change, one per line",
          h("textarea", { name: "folders", rows: 3, required: true, spellcheck: "false" }),
        )
      : null,
    h(
      "label",
      { key: "valid" },
      "For how long the code is good",
      h(
        "select",
        { name: "valid", value: "900" },
        Object.entries(VALID).map(([value, words]) => h("option", { key: value, value }, words)),
      ),
    ),
    h(
      "label",
      { class: "check", key: "credentials" },
      h("input", { type: "checkbox", name: "credentials" }),
      "Hand on the secrets of the clouds, as far as this machine has them",
    ),
  ];
}

function code({ code: text, qr: picture, expires }) {
  if (!text) return null;
  return [
    h("p", { key: "where" }, `On the other machine, before ${moment(expires)}:`),
    h("pre", { key: "code" }, `hybrisfs device join ${text}`),
    qr(picture, "The code of the invitation"),
    h(
      "p",
      { key: "or", class: "quiet" },
      "Or “Join a volume” on its page, with the code that follows “join”.",
    ),
  ];
}

/** Be let into a volume of another machine; resolves to its name, or undefined. */
export async function join(app) {
  const job = pairing();
  await dialog("Join a volume", (here) => {
    if (job.result)
      return [
        h("p", { key: "said" }, `This machine belongs to the volume ${job.result.volume.name} now.`),
        closing(here),
      ];
    if (job.id) return job.said.question ? comparing(here, job) : waiting(here, job, null);
    const onsubmit = here.submit(async (form) => {
      const given = (name) => form.elements[name].value.trim() || null;
      const words = given("code").split(/\s+/); // people copy the whole command
      await job.begin(here, {
        kind: "join",
        volume: "",
        code: words.at(-1),
        own_name: given("own_name"),
        as_name: given("as_name"),
      });
    });
    return h(
      "form",
      { key: "form", autocomplete: "off", onsubmit },
      joinFields(),
      trouble(here),
      choices(here, "Join"),
    );
  });
  await job.end();
  app.again();
  return job.result?.volume.name;
}

function joinFields() {
  return [
    h("p", { key: "help", class: "quiet" }, "Nothing is deleted anywhere by that, here or there."),
    field("code", "The code that the other machine shows", "", { required: true }),
    field("own_name", "Name of this machine", "its host name, if left out"),
    field("as_name", "Name of the volume here", "as there, if left out"),
  ];
}

// -- a pairing under way ------------------------------------------------------------------------------

/** A job of the server that pairs: `said` is where it stands, `result` what came of it. */
function pairing() {
  const job = { id: null, said: {}, result: null, over: false };
  const look = async (here) => {
    while (!job.over) {
      const found = (await get("/api/jobs")).jobs.find((one) => one.id === job.id);
      if (job.over) return;
      job.said = found?.pairing ?? {};
      if (found?.state !== "running") {
        Object.assign(job, { id: null, over: true });
        if (found?.state !== "done") throw new Failure(...found.error.split("\n"), 409);
        job.result = found.result;
      }
      here.redraw();
      await new Promise((resolve) => setTimeout(resolve, EVERY));
    }
  };
  job.begin = async (here, body) => {
    job.over = false;
    ({ id: job.id } = await ask("/api/jobs", body));
    look(here).catch((failure) => {
      if (!(failure instanceof Failure)) throw failure;
      here.failure = failure;
      here.redraw();
    });
  };
  job.end = async () => {
    const { id } = job;
    Object.assign(job, { id: null, said: {}, over: true });
    if (id) await ask(`/api/jobs/${id}/stop`, {}).catch(() => {}); // the server has ended: so has the job
  };
  return job;
}

function waiting(here, job, shown) {
  return [
    shown,
    job.said.comparison ? comparison(job.said) : null,
    h(
      "p",
      { key: "doing", role: "status", class: "quiet" },
      job.said.doing ? `${job.said.doing} …` : "Waiting …",
    ),
    h(
      "div",
      { class: "buttons", key: "cancel" },
      button("Cancel", () => here.close()),
    ),
  ];
}

const comparison = (said) =>
  h("p", { key: "comparison" }, "Comparison string: ", h("strong", { class: "compared" }, said.comparison));

function comparing(here, job) {
  const { pairing: id, device } = job.said;
  const answer = (accept) => async () => {
    job.said = { ...job.said, question: false };
    here.redraw();
    await ask("/api/do/confirm-device", { pairing: id, accept });
  };
  return [
    comparison(job.said),
    h("p", { key: "question" }, `Does ${device} show the same string? If not, somebody is in between.`),
    h(
      "div",
      { class: "buttons", key: "answers" },
      button("No", answer(false)),
      button("Yes, the same", answer(true), { kind: "primary" }),
    ),
  ];
}

// -- removing -----------------------------------------------------------------------------------------

/** Remove a machine from the volume. */
export async function removeDevice(app, { id, name }) {
  const { name: volume } = app.volume;
  const found = await app.attempt(() => ask(about(volume, "do/admitted"), { device: id }));
  if (!found) return;
  let removed = null;
  await dialog(`Remove ${name} for good?`, (here) => {
    if (removed) return [outcome(removed), closing(here)];
    const onsubmit = here.submit(async (form) => {
      const all = form.elements.admitted?.checked ?? false;
      removed = await ask(about(volume, "do/remove-device"), { device: id, with_admitted: all });
    });
    return h(
      "form",
      { key: "form", onsubmit },
      h(
        "p",
        { key: "what" },
        "It can read nothing that is written from now on, and nothing that it writes is accepted. What it has read before, it may have kept. It never comes back under its old identity: invite it again instead.",
      ),
      found.admitted.length
        ? h(
            "label",
            { class: "check", key: "admitted" },
            h("input", { type: "checkbox", name: "admitted" }),
            `It has let in ${these(found.admitted)}. Remove them with it`,
          )
        : null,
      trouble(here),
      choices(here, "Remove"),
    );
  });
  app.again();
}

const these = (devices) => devices.map((one) => `${one.device} (${one.id.slice(0, 8)})`).join(", ");

/** What a removal has done, in the sentences of the command. */
function outcome(done) {
  const short = done.id.slice(0, 8);
  const forGood = `For good: hybrisfs device remove ${short} on another machine, or here --with-kit.`;
  const said = !done.counts
    ? [
        `This machine wants ${done.device} removed, which has no effect yet: somebody has vetoed it, or this machine has removed another one, and that is not final.`,
        forGood,
      ]
    : [
        `${done.device} no longer belongs to the volume.`,
        ...(done.final
          ? []
          : [`That can be vetoed on other machines: hybrisfs device keep ${short}.`, forGood]),
      ];
  said.push(...done.charges.map((one) => `It ${one.what}; the proof is kept.`));
  if (done.removed.length) said.push(`Nor do those that it had let in: ${these(done.removed)}.`);
  if (done.remain.length)
    said.push(
      `Those that it has let in remain: ${these(done.remain)}.`,
      "Unless you know them: hybrisfs device remove, hybrisfs recovery remove.",
    );
  said.push("If it has secrets of these clouds, it can still delete there: change the secrets.");
  return [
    said.map((words) => h("p", { key: words }, words)),
    h(
      "ul",
      { class: "rows", key: "clouds" },
      done.clouds.map((url) => h("li", { key: url }, h("span", { class: "name" }, url))),
    ),
  ];
}

// -- QR codes, which the server tells as lines of half blocks, as a terminal shows them: a block is light -

const ROWS = { "█": [0, 0], "▀": [0, 1], "▄": [1, 0], " ": [1, 1] }; // dark above, dark below

/** A drawing of such lines, with the words that say what it is. */
function qr(lines, words) {
  const width = lines[0]?.length ?? 0;
  const height = lines.length * 2;
  const dark = lines.flatMap((line, y) =>
    [...line].flatMap((char, x) =>
      (ROWS[char] ?? [0, 0]).map((one, below) => (one ? `M${x} ${2 * y + below}h1v1h-1z` : "")),
    ),
  );
  return h(
    "svg",
    { key: "qr", class: "qr", viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": words },
    h("rect", { width, height, class: "qr-light" }),
    h("path", { d: dark.join(""), class: "qr-dark" }),
  );
}
