// The frame of the page: which section is shown, what it needs to know, and how often that is asked.

import { about, ask, begin, Failure, get } from "./api.js";
import { clouds } from "./clouds.js";
import { conflicts } from "./conflicts.js";
import { cost } from "./cost.js";
import { devices } from "./devices.js";
import { events } from "./events.js";
import { files } from "./files.js";
import { keyValue } from "./key_value.js";
import { overview } from "./overview.js";
import { empty, icon, looking, toast } from "./parts.js";
import { settings } from "./settings.js";
import { setup } from "./setup.js";
import { transfers } from "./transfers.js";
import { h, render } from "./vdom.js";
import { sentence } from "./words.js";

const SECTIONS = [overview, clouds, transfers, devices, files, keyValue, conflicts, cost, settings, events];
const STATUS_EVERY = 2; // seconds
const HIDDEN_EVERY = 60; // seconds between looks while nobody sees the page
const TICK = 500; // milliseconds
const PATIENCE = 2000; // milliseconds until a section is shown although not all is known

const asked = new Map(); // what was asked: when, and whether the answer is still to come
const memories = new Map();

/** What the sections see and do. */
const app = {
  volumes: null,
  chosen: null, // the name of the volume that is shown
  section: overview,
  data: {}, // answers by name, of the chosen volume
  wanted: null, // what the link wants to be shown of the files: {folder} or {file}, a path
  failure: null,
  refused: false, // the link was used before: there is nothing to ask for
  since: 0, // when the section was chosen
  shown: null, // the section and the volume that were shown: from then on they stay

  get volume() {
    return this.volumes?.find((one) => one.name === this.chosen) ?? this.volumes?.[0] ?? null;
  },

  redraw: () => draw(),

  /** Something that a part of the page remembers while it is shown. */
  memory(key, initial) {
    const name = `${app.volume?.name} ${key}`;
    if (!memories.has(name)) memories.set(name, initial);
    return memories.get(name);
  },

  /** Have something done on the volume, say so, and look again. */
  async act(action, body, said) {
    await app.attempt(async () => {
      await ask(about(app.volume.name, `do/${action}`), body);
      if (said) toast(said);
    });
  },

  /** Begin long work. */
  async begin(kind, more = {}) {
    await app.attempt(() => ask("/api/jobs", { kind, volume: app.volume.name, ...more }));
  },

  /** Do something; show what goes wrong, and look again. */
  async attempt(work) {
    try {
      return await work();
    } catch (error) {
      if (!(error instanceof Failure)) throw error;
      toast([sentence(error.message), error.advice].filter(Boolean).join(" "), "bad");
      return undefined;
    } finally {
      app.again();
    }
  },

  /** Look again at all that is shown. */
  again() {
    asked.clear();
    tick();
  },
};

// -- asking ---------------------------------------------------------------------------------------

function tick() {
  if (app.refused) return;
  const pace = document.hidden ? HIDDEN_EVERY : 0;
  look("status", Math.max(STATUS_EVERY, pace), async () => {
    const first = app.volumes === null;
    const facts = await get("/api/volumes");
    app.volumes = facts.volumes;
    app.version = facts.daemon.version;
    if (!first) return;
    tick(); // what the section needs
    get("/api/volumes?look=1").then(
      () => asked.delete("status"),
      () => {},
    );
  });
  const volume = app.volume;
  if (!volume || volume.unusable) return;
  for (const { name, every, url } of app.section.needs?.(app) ?? []) {
    look(`${volume.name} ${name}`, Math.max(every, pace), async () => {
      const facts = await get(url ?? about(volume.name, name));
      if (app.volume?.name === volume.name) {
        app.data[name] = facts;
        app.section.heard?.(app, name, facts);
      }
    });
  }
}

/** Ask for something unless that was done less than `every` seconds ago or is under way. */
async function look(name, every, work) {
  const last = asked.get(name);
  const now = performance.now();
  if (last && (last.busy || now - last.at < every * 1000)) return;
  const mark = { at: now, busy: true };
  asked.set(name, mark);
  try {
    await work();
    if (name === "status") app.failure = null;
  } catch (error) {
    if (!(error instanceof Failure)) throw error;
    if (name === "status" || error.status === 0 || error.status === 401) app.failure = error;
    else app.data[name.slice(name.indexOf(" ") + 1)] = { failure: error };
  } finally {
    mark.busy = false;
  }
  draw();
}

// -- showing --------------------------------------------------------------------------------------

/** Whether this machine has no volume. */
const isEmpty = () => app.volumes?.length === 0;

function attention(volume) {
  return { conflicts: volume.conflicts || 0 };
}

function navigation() {
  const counts = app.volume ? attention(app.volume) : {};
  return h(
    "nav",
    { "aria-label": "Sections", class: app.volumes ? "" : "later" },
    h(
      "ul",
      null,
      SECTIONS.map((one) =>
        h(
          "li",
          { key: one.id },
          h(
            "a",
            { href: `#${one.id}`, "aria-current": one === app.section ? "page" : undefined },
            one.title,
            counts[one.id]
              ? h("span", { class: "count" }, counts[one.id], h("span", { class: "hidden" }, " to settle"))
              : null,
          ),
        ),
      ),
    ),
  );
}

function chooser() {
  const volumes = app.volumes ?? [];
  if (volumes.length < 2) return volumes.length ? h("span", { class: "volume" }, volumes[0].name) : null;
  return h(
    "label",
    { class: "volume" },
    h("span", { class: "hidden" }, "Volume"),
    h(
      "select",
      {
        value: app.volume.name,
        onchange: (event) => {
          app.chosen = event.target.value;
          app.data = {};
          begun();
          asked.clear();
          tick();
          draw();
        },
      },
      volumes.map((one) => h("option", { value: one.name, key: one.name }, one.name)),
    ),
  );
}

/** Nothing is shown before it is whole, so that nothing moves while somebody reads; only slow clouds are not waited for. */
function isReady() {
  const what = `${app.section.id} ${app.volume.name}`;
  const answered = (app.section.needs?.(app) ?? []).every(({ name }) => app.data[name]);
  if (answered || performance.now() - app.since >= PATIENCE) app.shown = what;
  return app.shown === what;
}

/** What the section says; null while it has nothing to say. */
function content() {
  if (app.failure) {
    return h(
      "div",
      { class: "notice bad", role: "alert" },
      icon("bad"),
      h("div", null, h("strong", null, app.failure.message), " ", app.failure.advice),
    );
  }
  if (!app.volumes) return null;
  if (!app.volume) return setup(app);
  if (app.volume.unusable)
    return app.section === overview ? overview.view(app) : empty("This volume cannot be used just now.");
  return isReady() ? app.section.view(app) : null;
}

function draw() {
  const stale = app.failure && app.volumes;
  const shown = content();
  render(
    document.getElementById("app"),
    h(
      "header",
      null,
      h(
        "div",
        { class: "bar" },
        h(
          "a",
          { class: "brand", href: "#overview" },
          h("img", { src: "/static/icon.svg", alt: "", width: 26, height: 26 }),
          "HybrisFS",
        ),
        chooser(),
      ),
      isEmpty() ? null : navigation(),
    ),
    h(
      "main",
      { id: "content", key: isEmpty() ? "setup" : "section", tabindex: -1, class: stale ? "stale" : "" },
      h("h1", { class: "hidden" }, isEmpty() ? "Set up" : app.section.title),
      shown ?? looking(),
    ),
    h(
      "footer",
      null,
      shown && app.version ? `HybrisFS ${app.version}. This page is served by this machine, for you alone.` : "",
    ),
  );
  const title = isEmpty() ? "Set up" : app.volume?.verdict ? app.section.title : null;
  document.title = title ? `${title} – HybrisFS` : "HybrisFS";
}

/** Another section or volume is to be shown: when all is known of it, or after a while. */
function begun() {
  app.since = performance.now();
  setTimeout(draw, PATIENCE);
}

function route() {
  const id = location.hash.slice(1);
  if (id === "content") return;
  const section = SECTIONS.find((one) => one.id === id) ?? overview;
  if (section !== app.section) {
    app.section = section;
    scrollTo(0, 0);
    begun();
  }
  tick();
  draw();
  showCurrent();
}

/** Scroll the row of sections to the one that is shown: on a phone there is no room for all. */
function showCurrent() {
  document.querySelector("nav a[aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" });
}

addEventListener("hashchange", route);
addEventListener("resize", showCurrent);
document.addEventListener("visibilitychange", tick);
draw(); // something to see while the code is exchanged
try {
  const link = await begin();
  app.chosen = link.get("volume");
  if (link.has("file")) app.wanted = { file: link.get("file") };
  else if (link.has("folder")) app.wanted = { folder: link.get("folder") };
} catch (error) {
  app.refused = true;
  app.failure = error;
}
begun();
route();
if (!app.refused) setInterval(tick, TICK);
