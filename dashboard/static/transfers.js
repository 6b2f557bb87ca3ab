// What moves now, and what may move when.

import { ask } from "./api.js";
import { badge, button, card, empty, facts, meter } from "./parts.js";
import { h } from "./vdom.js";
import { ago, count, duration, hold, machinesOnly, moment, rate, size } from "./words.js";

const SHOWN_FROM = 64000; // bytes; what is smaller is over before it can be read
const WORDS = { put: "to", get: "from" };
const KINDS = { scrub: "Verifying", repair: "Repairing", sync: "Bringing everything to the clouds" };

export const transfers = {
  id: "transfers",
  title: "Transfers",
  needs: () => [
    { name: "traffic", every: 1 },
    { name: "jobs", every: 1, url: "/api/jobs" },
    { name: "pending", every: 3 },
  ],
  /** Speeds are what has moved between two answers. */
  heard(app, name, facts_) {
    if (name !== "traffic") return;
    const last = app.memory("traffic", { now: null, clouds: [], speeds: {} });
    const seconds = last.now === null ? 0 : facts_.now - last.now;
    if (seconds > 0.2) {
      last.speeds = Object.fromEntries(
        facts_.clouds.map((one) => {
          const before = last.clouds.find((other) => other.name === one.name) ?? one;
          return [
            one.name,
            {
              up: Math.max(0, one.up - before.up) / seconds,
              down: Math.max(0, one.down - before.down) / seconds,
            },
          ];
        }),
      );
    }
    if (seconds > 0.2 || last.now === null) Object.assign(last, { now: facts_.now, clouds: facts_.clouds });
  },
  view(app) {
    const { volume } = app;
    const traffic = app.data.traffic?.clouds ?? [];
    const { speeds } = app.memory("traffic", { now: null, clouds: [], speeds: {} });
    const moving = traffic.flatMap((cloud) =>
      cloud.transfers.filter((one) => one.size >= SHOWN_FROM).map((one) => ({ ...one, cloud: cloud.name })),
    );
    const sum = (name) => Object.values(speeds).reduce((total, one) => total + one[name], 0);
    return h(
      "div",
      { class: "grid-cards" },
      card(
        "Now",
        { wide: true, aside: h("span", null, `${rate(sum("up"))} up, ${rate(sum("down"))} down`) },
        facts(
          [
            "On the way to the clouds",
            volume.pending_files || volume.pending_bytes
              ? `${count(volume.pending_files, "change")}, ${size(volume.pending_bytes)}`
              : machinesOnly(volume)
                ? "nothing from here, but other machines have something to bring"
                : "nothing, all is there",
          ],
          volume.pinned?.missing_bytes
            ? ["On the way to this machine", size(volume.pinned.missing_bytes)]
            : null,
          ...(volume.jobs ?? []).map((one) => ["In the background", one]),
        ),
        moving.length
          ? h("ul", { class: "moving" }, moving.map(transfer))
          : empty(volume.transfers?.held ? hold(volume.transfers) : "Nothing large is moving."),
        h(
          "div",
          { class: "buttons" },
          pauses(app),
          button("Bring everything to the clouds now", () => app.begin("sync")),
        ),
      ),
      jobs(app),
      waiting(app),
      limits(app),
      card(
        "By cloud",
        null,
        h(
          "ul",
          { class: "rows" },
          traffic.map((one) =>
            h(
              "li",
              { key: one.name },
              h("span", { class: "name" }, one.name),
              h(
                "span",
                null,
                `${rate(speeds[one.name]?.up ?? 0)} up, ${rate(speeds[one.name]?.down ?? 0)} down`,
              ),
            ),
          ),
        ),
      ),
    );
  },
};

function transfer(one, index) {
  const words = `${size(one.size)} ${WORDS[one.operation]} ${one.cloud}`;
  return h(
    "li",
    { key: index },
    h("span", null, words),
    meter(one.moved, one.size, words, one.operation === "put" ? "up" : "down"),
    h("span", { class: "quiet" }, one.seconds > 0.5 ? rate(one.moved / one.seconds) : ""),
  );
}

/** Which files wait for the clouds, those that have waited longest first. */
function waiting(app) {
  const known = app.data.pending;
  if (!known?.total) return null;
  const more = known.total - known.files.length;
  return card(
    "Waiting for the clouds",
    {
      wide: true,
      aside: h(
        "span",
        null,
        known.seconds === null ? size(known.bytes) : `${size(known.bytes)}, about ${duration(known.seconds)} to go`,
      ),
    },
    h(
      "ul",
      { class: "rows" },
      known.files.map((one, key) =>
        h(
          "li",
          { key },
          h("span", { class: "name" }, one.path === "" ? "(the folder itself)" : (one.path ?? "(removed)")),
          one.is_open ? badge("quiet", "open in a program") : null,
          h(
            "span",
            null,
            [
              one.bytes ? size(one.bytes) : "name or attributes",
              one.since === null ? "" : `changed ${ago(one.since)}`,
            ]
              .filter(Boolean)
              .join(", "),
          ),
        ),
      ),
    ),
    more > 0 ? h("p", { class: "quiet" }, `and ${count(more, "other")}`) : null,
  );
}

/** Buttons that pause transfers, or let them go on. */
export function pauses(app) {
  const { transfers: facts_ } = app.volume;
  if (!facts_) return null;
  if (facts_.held === "paused")
    return h(
      "div",
      { class: "buttons" },
      button("Resume transfers", () => app.act("resume", {}, "Transfers go on."), { kind: "primary" }),
    );
  return h(
    "div",
    { class: "buttons" },
    button("Pause for an hour", () =>
      app.act("pause", { seconds: 3600 }, "Transfers are paused for an hour."),
    ),
    button("Pause", () => app.act("pause", {}, "Transfers are paused.")),
  );
}

function limits(app) {
  const facts_ = app.volume.transfers;
  if (!facts_) return null;
  /** What a timetable means just now. */
  const now = (way) =>
    way.changes_at
      ? h("small", null, ` ${way.rate === null ? "off" : rate(way.rate)} until ${moment(way.changes_at)}`)
      : null;
  const save = (event) => {
    event.preventDefault();
    const form = new FormData(event.target);
    return app.act(
      "limit",
      { up: form.get("up"), down: form.get("down"), on_metered: form.get("metered") ? "pause" : "ignore" },
      "The limits hold from now on.",
    );
  };
  const field = (name, words) =>
    h(
      "label",
      null,
      h("span", null, words, now(facts_[name])),
      h("input", {
        name,
        value: facts_[name].timetable,
        spellcheck: "false",
        autocomplete: "off",
        "aria-describedby": "limit-help",
      }),
    );
  return card(
    "Limits",
    null,
    h(
      "form",
      { onsubmit: save },
      field("up", "Up"),
      field("down", "Down"),
      h(
        "p",
        { id: "limit-help", class: "quiet" },
        "off, a speed such as 500k or 10M (bytes a second), or a timetable: 08:00,512k 19:00,off",
      ),
      h(
        "label",
        { class: "check" },
        h("input", { type: "checkbox", name: "metered", checked: facts_.on_metered === "pause" }),
        "Pause on metered networks",
      ),
      h("div", { class: "buttons" }, h("button", { class: "primary" }, "Save")),
    ),
  );
}

/** Long work that this page has begun. */
export function jobs(app) {
  const found = (app.data.jobs?.jobs ?? []).filter(
    (one) => one.volume === app.volume.name && one.kind in KINDS,
  );
  if (!found.length) return null;
  return card(
    "Jobs",
    { wide: true },
    h(
      "ul",
      { class: "moving" },
      found.slice(0, 5).map((one) =>
        h(
          "li",
          { key: one.id },
          h("span", null, KINDS[one.kind]),
          one.state === "running"
            ? meter(one.done, one.total, KINDS[one.kind])
            : h("span", { class: "outcome" }, outcome(one)),
          one.state === "running"
            ? button("Stop", () => app.attempt(() => ask(`/api/jobs/${one.id}/stop`, {})), {
                label: `Stop: ${KINDS[one.kind]}`,
              })
            : null,
        ),
      ),
    ),
  );
}

function outcome(job) {
  const { kind, state, result, error } = job;
  if (state === "failed") return [badge("bad", "failed"), " ", error];
  if (state === "stopped") return badge("quiet", "stopped");
  if (kind === "sync")
    return result.done ? badge("good", "all is there") : badge("wary", "not all is there yet");
  if (kind === "repair") return [badge("good", "done"), ` ${count(result.repaired ?? 0, "object")} repaired`];
  const problems = (result.problems ?? []).map((one) => `${one.cloud}: ${one.what}`);
  const unnamed = (result.values?.unnamed ?? 0) + (result.values?.former ?? 0);
  const more = unnamed ? ` ${count(unnamed, "object")} of values that no key names (hybrisfs kv clean)` : "";
  return result.wrong
    ? [badge("bad", `${count(result.wrong, "problem")} found`), ` ${problems.slice(0, 3).join("; ")}`, more]
    : [badge("good", "all right"), more];
}
