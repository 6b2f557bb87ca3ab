// At one glance: is everything safe?

import { lately } from "./events.js";
import { pauses } from "./transfers.js";
import { badge, button, card, confirm, facts, icon, meter } from "./parts.js";
import { mountVolume } from "./mounting.js";
import { makeKit } from "./recovery.js";
import { plot } from "./plot.js";
import { h } from "./vdom.js";
import { ago, cloudState, count, list, machines, rate, size, summary } from "./words.js";

const RECOVERY_EVERY = 600; // seconds; that asks the clouds
const HELD_EVERY = 30;
const HELD_SHOWN = 4;

export const overview = {
  id: "overview",
  title: "Overview",
  needs: (app) => [
    { name: "history?span=hour", every: 10 },
    { name: "deletions", every: 5 },
    { name: "events", every: 5 },
    { name: "recovery", every: RECOVERY_EVERY },
    ...undecided(app).map((one) => ({ name: heldName(one), every: HELD_EVERY })),
  ],
  view(app) {
    const { volume } = app;
    const [tone, sentence, meaning] = summary(volume);
    return [
      h(
        "section",
        { class: `hero ${tone}`, "aria-label": "Is everything safe?", key: "hero" },
        icon(tone, "hero-icon"),
        h(
          "div",
          { role: "status" },
          h("p", { class: "sentence" }, sentence),
          h("p", { class: "meaning" }, meaning),
        ),
      ),
      volume.unusable
        ? null
        : [
            todo(app),
            h(
              "div",
              { class: "grid-cards", key: "cards" },
              cloudsCard(volume),
              speedCard(app),
              deviceCard(volume),
              storageCard(app),
              lately(app),
            ),
          ],
    ];
  },
};

/** What waits for a person. */
function todo(app) {
  const { volume } = app;
  const kits = app.data.recovery?.kits;
  const tasks = [];
  if (volume.conflicts) {
    tasks.push(
      task(
        "conflicts",
        `${count(volume.conflicts, "conflict")}: changed in two places at once.`,
        "Both versions are kept; choose when you like.",
        h("a", { class: "button", href: "#conflicts" }, "Choose"),
      ),
    );
  }
  for (const one of undecided(app)) tasks.push(deletion(app, one));
  if (kits && kits.length === 0) {
    tasks.push(
      task(
        "kit",
        "There is no recovery kit.",
        "If all your machines were lost, nothing could be read any more.",
        button("Make a recovery kit", () => makeKit(app), { kind: "primary" }),
      ),
    );
  }
  for (const kit of kits ?? []) {
    const replaced = kit.used
      ? "A machine was recovered by a recovery kit."
      : kit.unsigned
        ? "Any machine could overwrite the recovery kit, which is of an earlier version."
        : null;
    if (replaced)
      tasks.push(
        task(
          kit.kit,
          replaced,
          `Make a new kit, then remove ${kit.kit}.`,
          h("a", { class: "button", href: "#devices" }, "Recovery kits"),
        ),
      );
    else if (!kit.complete) {
      const lacking = list(kit.clouds.filter((one) => one.state !== "complete").map((one) => one.name));
      tasks.push(task(kit.kit, `The recovery kit is not on ${lacking} yet.`, "It gets there by itself."));
    }
  }
  for (const one of volume.warnings ?? []) {
    if (!one.includes("deletions list")) tasks.push(task(one, one, ""));
  }
  for (const one of volume.notices ?? []) tasks.push(task(one, one, ""));
  if (volume.last_error)
    tasks.push(task("error", "Something went wrong in the background.", volume.last_error));
  if (!tasks.length) return null;
  return card("For you to look at", { wide: true }, h("ul", { class: "tasks" }, tasks));
}

/** What another machine has deleted or overwritten in mass. */
function deletion(app, one) {
  const many = `${one.names.toLocaleString("en")} of ${one.of.toLocaleString("en")} ${one.overwrites ? "files" : "files and folders"}`;
  const [did, verb, done] = one.overwrites
    ? ["overwrote", "Overwrite", "Overwritten"]
    : ["deleted", "Delete", "Deleted"];
  const why = one.overwrites
    ? "That is much at once, as after ransomware, so this machine still shows these files as they were."
    : "That is much, so nothing of it was deleted here yet.";
  return task(
    one.id,
    `${one.device} ${did} ${many} ${ago(one.time)}.`,
    [why, heldFiles(app.data[heldName(one)])],
    button(
      "Bring them back",
      () => app.act("undo-deletion", { id: one.id }, "Brought back on all machines."),
      { kind: "primary" },
    ),
    button(`${verb} here, too`, async () => {
      if (
        await confirm(
          `${verb} here, too?`,
          `What ${one.device} ${did} is ${did === "deleted" ? did : "overwritten"} on this machine, too: ${many}.`,
          verb,
        )
      )
        await app.act("accept-deletion", { id: one.id }, `${done} here, too.`);
    }),
  );
}

/** Of what is overwritten, samples are looked at before anybody is asked. */
const undecided = (app) => (app.data.deletions?.deletions ?? []).filter((one) => one.examined);
const heldName = (one) => `held?id=${one.id}`;

/** The first files of a deletion. */
function heldFiles(held) {
  if (!held?.files?.length) return null;
  const some = held.files.slice(0, HELD_SHOWN).map((one) => one.path);
  const others = held.count - some.length;
  return ` For example ${list(some)}${others > 0 ? `, and ${count(others, "other")}` : ""}.`;
}

function task(key, what, why, ...buttons) {
  return h(
    "li",
    { key },
    icon("wary"),
    h("div", { class: "task" }, h("strong", null, what), why ? h("p", null, why) : null),
    buttons.length ? h("div", { class: "buttons" }, buttons) : null,
  );
}

function cloudsCard(volume) {
  return card(
    "Clouds",
    { aside: h("a", { href: "#clouds" }, "Details") },
    h(
      "ul",
      { class: "rows" },
      volume.clouds.map((one) => {
        const [tone, words] = cloudState(one.state);
        return h(
          "li",
          { key: one.name },
          h("span", { class: "name" }, one.name),
          badge(tone, words, one.reason || undefined),
        );
      }),
    ),
  );
}

function speedCard(app) {
  const history = app.data["history?span=hour"];
  const aside = h("a", { href: "#transfers" }, "Details");
  if (!history?.clouds?.length)
    return card("Last hour", { aside }, h("p", { class: "empty tall" }, "Plots begin in a moment."), pauses(app));
  const total = (name) =>
    history.clouds[0][name].map((_, index) => {
      const known = history.clouds.map((one) => one[name][index]).filter((one) => one !== null);
      return known.length ? known.reduce((sum, one) => sum + one, 0) : null;
    });
  const lines = [
    { name: "Up", cls: "up", values: total("up"), area: true },
    { name: "Down", cls: "down", values: total("down") },
  ];
  return card(
    "Last hour",
    { aside },
    plot("Speed", lines, {
      ...history,
      show: rate,
      redraw: app.redraw,
      memory: app.memory("speed", { at: null }),
    }),
    pauses(app),
  );
}

function deviceCard(volume) {
  return card(
    "Machines",
    { aside: h("a", { href: "#devices" }, "Details") },
    h(
      "ul",
      { class: "rows" },
      machines(volume).map((one) =>
        h(
          "li",
          { key: one.id },
          h("span", { class: "name" }, one.name),
          one.this
            ? badge("quiet", "this machine")
            : one.suspect
              ? badge("wary", "silent")
              : one.linked
                ? badge("good", "linked")
                : badge("quiet", one.last_seen ? ago(one.last_seen) : "not seen yet"),
        ),
      ),
    ),
  );
}

function storageCard(app) {
  const { volume } = app;
  const { cache, pinned } = volume;
  return card(
    "Files",
    { aside: h("a", { href: "#files" }, "Browse") },
    facts(
      ["In the folder", `${count(volume.files, "file")}, ${size(volume.bytes)}`],
      ["Where", volume.mountpoint ?? "not mounted"],
      pinned?.files
        ? [
            "Pinned",
            `${count(pinned.files, "file")}, ${size(pinned.bytes)}${pinned.missing_bytes ? `, ${size(pinned.missing_bytes)} still to come` : ""}`,
          ]
        : null,
      ...(volume.copies ?? []).map((one) => [
        `Copies of ${one.inside || "everything"}`,
        badge(
          one.on.length < one.copies ? "wary" : "good",
          `${one.on.length} of ${one.copies}`,
          "On how many machines it is, and on how many it is to be",
        ),
        one.on.length ? ` ${one.on.join(", ")}` : null,
        one.fetching.length ? `; ${one.fetching.join(", ")} fetching it` : null,
      ]),
      ["Kept on this machine", `${size(cache.bytes)}, at most ${size(cache.budget)}`],
    ),
    meter(cache.bytes, cache.budget, "Kept on this machine"),
    volume.mountpoint
      ? null
      : h(
          "div",
          { class: "buttons" },
          button("Mount", () => mountVolume(app, volume.name), { kind: "primary" }),
        ),
  );
}
