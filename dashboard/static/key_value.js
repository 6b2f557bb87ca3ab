// The key-value store: its containers by where their metadata are, and the keys of one of them.

import { about, ask } from "./api.js";
import { badge, button, card, confirm, empty, reveal, toast } from "./parts.js";
import { h } from "./vdom.js";
import { count, moment, sentence, size } from "./words.js";

const ON_DEVICE = "device"; // in the place of a URL
const IN_LOG = "log"; // likewise
const ON_CLOUDS = "clouds"; // what such a place begins with
const PLACES = [
  [IN_LOG, "All machines hold the keys and their values, of at most 256 KiB. Usual when there are several."],
  [ON_DEVICE, "This machine alone has the list. Usual when there is no other."],
  [ON_CLOUDS, "The clouds hold it for all machines, without a server. When one may fail, that needs four."],
  [
    "etcd://HOSTS, zookeeper://HOSTS",
    "That service holds it for all machines. Its operator sees the names of keys, unless the URL ends with ?names=sealed. hybrisfs cloud login URL gives this machine the password.",
  ],
];
const EVERY = 5000; // milliseconds

export const keyValue = {
  id: "kv",
  title: "Key-value",
  needs: () => [{ name: "containers", every: 10 }],
  view(app) {
    const known = app.data.containers;
    if (known?.failure) return empty(because("The containers cannot be shown", known.failure.message));
    if (!known) return null;
    const shown = app.memory("keys", unread(null));
    const old = performance.now() - shown.loaded > EVERY;
    if (shown.container !== null && shown.answered === shown.asked && old) load(app, shown);
    return h(
      "div",
      { class: "grid-cards" },
      known.places.map((one, index) => place(app, shown, one, index)),
      shown.container === null ? null : keys(app, shown),
      creation(app, known.places),
    );
  },
};

const because = (what, why) => sentence(`${what}: ${why}`);

/** A container of which nothing has been read yet. */
function unread(container) {
  return {
    container,
    prefix: "",
    before: [null], // the keys that the pages up to this one follow
    turning: false,
    page: null,
    failure: null,
    loaded: 0,
    asked: 0, // how often
    answered: 0, // the last of these that was
  };
}

/** Show the keys of a container, or of none (null), from the first one on. */
function show(app, shown, container) {
  const { asked } = shown; // what is under way must not be taken for an answer to this
  Object.assign(shown, unread(container), { asked });
  return container === null ? app.redraw() : load(app, shown);
}

async function load(app, shown) {
  shown.loaded = performance.now();
  shown.asked += 1;
  const { asked, container, prefix } = shown;
  const after = shown.before.at(-1);
  let answer;
  try {
    const page = await ask(about(app.volume.name, "keys"), { container, prefix, after });
    answer = { page, failure: null };
  } catch (failure) {
    answer = { page: null, failure };
  }
  if (shown.asked === asked && shown.container === container)
    Object.assign(shown, answer, { answered: asked, turning: false });
  app.redraw();
}

// -- containers -------------------------------------------------------------------------------------

function place(app, shown, { metadata, containers, trouble, where }, index) {
  const here = metadata === ON_DEVICE;
  return card(
    here
      ? "On this machine"
      : metadata === IN_LOG
        ? "In the log of the volume"
        : isOnClouds(metadata)
          ? "On the clouds"
          : metadata,
    {
      id: `place-${index}`,
      aside: trouble
        ? badge("bad", "cannot be used")
        : h("span", { class: "quiet" }, count(containers.length, "container")),
    },
    h(
      "p",
      { class: "quiet" },
      here
        ? "Only this machine knows which keys are in these containers."
        : metadata === IN_LOG
          ? "All machines of the volume hold these containers, and use them offline, too."
          : isOnClouds(metadata)
            ? `All machines of the volume use these containers, without a server: ${where}.`
            : "All machines of the volume use these containers.",
    ),
    trouble ? h("p", { class: "reason" }, because("Its containers are not known", trouble)) : null,
    containers.length
      ? h(
          "ul",
          { class: "rows" },
          containers.map((one) => container(app, shown, one)),
        )
      : trouble
        ? null
        : empty("There are none yet. A container holds values of programs, each under a key."),
    here || metadata === IN_LOG ? null : h("div", { class: "buttons" }, forgetting(app, metadata, where)),
  );
}

function isOnClouds(metadata) {
  return metadata.split(":")[0] === ON_CLOUDS;
}

function container(app, shown, name) {
  return h(
    "li",
    { key: name },
    h("span", { class: "name" }, name),
    button("Keys", () => reach(app, shown, name), { label: `Keys of ${name}` }),
  );
}

async function reach(app, shown, name) {
  await show(app, shown, name);
  reveal("keys");
}

function forgetting(app, url, where) {
  const forget = async () => {
    if (
      !(await confirm(
        "Forget this service?",
        `No machine of the volume uses ${where} any more. What is in it stays there, and its values stay on the clouds: a new container with this URL brings them back.`,
        "Forget",
      ))
    )
      return;
    await app.act("forget-service", { metadata: url }, `${where} is not used any more.`);
  };
  return button("Forget", forget, { label: `Forget ${where}` });
}

function creation(app, places) {
  const known = places.map((one) => [one.metadata, one.where]);
  const services = new Map([...[ON_DEVICE, IN_LOG, ON_CLOUDS].map((one) => [one, one]), ...known]);
  const create = async (event) => {
    event.preventDefault();
    const form = event.target;
    const given = new FormData(form);
    const name = given.get("container");
    event.submitter?.setAttribute("aria-busy", "true"); // a service may take long to answer
    const metadata = given.get("metadata").trim() || null;
    const done = await app.attempt(async () => {
      await ask(about(app.volume.name, "do/create-container"), { container: name, metadata });
      toast(`Made the container ${name}.`);
      return true;
    });
    event.submitter?.removeAttribute("aria-busy");
    if (done) form.reset();
  };
  return card(
    "New container",
    null,
    h(
      "form",
      { onsubmit: create },
      h(
        "label",
        null,
        "Name",
        h("input", { name: "container", required: true, spellcheck: "false", autocomplete: "off" }),
      ),
      h(
        "label",
        null,
        h("span", null, "Where the list of keys is ", h("small", null, "may be left out")),
        h("input", {
          name: "metadata",
          list: "services",
          spellcheck: "false",
          autocomplete: "off",
          "aria-describedby": "metadata-help",
        }),
      ),
      h(
        "datalist",
        { id: "services" },
        [...services].map(([value, label]) => h("option", { key: value, value, label })),
      ),
      h(
        "dl",
        { id: "metadata-help", class: "kinds" },
        PLACES.map(([form, what]) =>
          h("div", { key: form }, h("dt", null, h("code", null, form)), h("dd", null, what)),
        ),
      ),
      h("div", { class: "buttons" }, h("button", { class: "primary" }, "Create")),
    ),
  );
}

// -- keys -------------------------------------------------------------------------------------------

function keys(app, shown) {
  return card(
    `Keys of ${shown.container}`,
    {
      id: "keys",
      wide: true,
      aside: button("Close", () => show(app, shown, null), { label: `Close: Keys of ${shown.container}` }),
    },
    filter(app, shown),
    shown.failure
      ? empty(because("The keys cannot be shown", shown.failure.message))
      : shown.page === null
        ? empty("Looking …")
        : shown.page.keys.length
          ? table(shown.page.keys)
          : empty(none(shown)),
    turning(app, shown),
  );
}

function none({ prefix, before }) {
  if (before.length > 1) return "There are no more keys.";
  return prefix ? `No key begins with ${prefix}.` : "This container has no keys.";
}

function filter(app, shown) {
  const apply = (event) => {
    event.preventDefault();
    Object.assign(shown, { prefix: new FormData(event.target).get("prefix"), before: [null], page: null });
    return load(app, shown);
  };
  return h(
    "form",
    { class: "filter", key: `filter ${shown.container}`, role: "search", onsubmit: apply },
    h(
      "label",
      null,
      "Keys that begin with",
      h("input", {
        type: "search",
        name: "prefix",
        value: shown.prefix,
        spellcheck: "false",
        autocomplete: "off",
      }),
    ),
    h("button", null, "Filter"),
  );
}

function table(found) {
  return h(
    "table",
    { class: "files" },
    h("caption", { class: "hidden" }, "The keys"),
    h(
      "thead",
      null,
      h(
        "tr",
        null,
        ["Key", "Size", "Version", "Written"].map((one) => h("th", { scope: "col", key: one }, one)),
      ),
    ),
    h(
      "tbody",
      null,
      found.map((one) =>
        h(
          "tr",
          { key: one.key },
          h("th", { scope: "row", class: "key" }, one.key),
          h("td", { "data-label": "Size", class: "number" }, size(one.size)),
          h("td", { "data-label": "Version", class: "number" }, one.version.toLocaleString("en")),
          h("td", { "data-label": "Written", class: "number" }, one.written === null ? "unknown" : moment(one.written)),
        ),
      ),
    ),
  );
}

function turning(app, shown) {
  const { before, page } = shown;
  if (before.length === 1 && !page?.more) return null;
  const turn = (pages) => {
    if (shown.turning) return undefined; // the page that is still shown is not where the next one begins
    Object.assign(shown, { before: pages, turning: true });
    return load(app, shown);
  };
  return h(
    "div",
    { class: "buttons" },
    button("Previous keys", () => turn(before.slice(0, -1)), { disabled: before.length === 1 }),
    button("Next keys", () => turn([...before, page.keys.at(-1).key]), { disabled: !page?.more }),
  );
}
