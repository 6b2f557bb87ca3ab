// The machines that share the volume.

import { about, ask } from "./api.js";
import { mountVolume } from "./mounting.js";
import { invite, join, removeDevice } from "./pairing.js";
import { badge, button, card, facts, toast } from "./parts.js";
import { recovery } from "./recovery.js";
import { h } from "./vdom.js";
import { ago, count, latency, machines, moment } from "./words.js";

export const devices = {
  id: "devices",
  title: "Machines",
  needs: () => [{ name: "recovery", every: 60 }],
  view(app) {
    const { volume } = app;
    return h(
      "div",
      { class: "grid-cards" },
      machines(volume).map((one) => device(app, one)),
      (volume.accused ?? []).map((one) => accused(app, one)),
      another(app),
      recovery(app),
      stale(app),
    );
  },
};

function device(app, one) {
  const [tone, words] = one.this
    ? ["quiet", "this machine"]
    : one.suspect
      ? ["wary", "silent for too long"]
      : one.linked
        ? ["good", one.relay ? "linked through a relay" : "linked directly"]
        : ["good", "through the clouds"];
  return card(
    one.name,
    { id: `device-${one.id}`, aside: badge(tone, words) },
    one.forked
      ? h(
          "p",
          { class: "reason" },
          "This machine was restored from a backup or cloned: its history has two branches. Both are kept.",
        )
      : null,
    ...(one.charges ?? [])
      .filter((charge) => charge.kind !== "fork")
      .map((charge) =>
        h("p", { class: "reason" }, `It ${charge.what}. It may have been taken over; the proof is kept.`),
      ),
    one.suspect
      ? h(
          "p",
          { class: "reason" },
          `Changes of it may be missing here since ${one.last_seen ? moment(one.last_seen) : "ever"}.`,
        )
      : null,
    one.unanswered_since
      ? h(
          "p",
          { class: "reason" },
          `What no file needs is not deleted from the clouds since ${moment(one.unanswered_since)}: it has not agreed.`,
        )
      : null,
    one.overstepped
      ? h("p", { class: "reason" }, "It has signed what it may not: that counts for nobody.")
      : null,
    (one.proposed ?? []).map((proposed) => [
      h("p", { class: "reason" }, `${proposed.by} wants it to only read. To agree, on another machine:`),
      h("pre", null, `hybrisfs device role ${one.id.slice(0, 8)} ${proposed.role}`),
    ]),
    facts(
      one.reader ? ["May", "only read"] : null,
      one.folders ? ["May", `change only ${one.folders.join(", ") || "folders that are gone"}`] : null,
      one.this ? null : ["Last seen", one.linked ? "now" : one.last_seen ? ago(one.last_seen) : "not yet"],
      one.this ? null : ["Behind by", one.lag ? count(one.lag, "update") : "nothing"],
      one.relay ? ["Relay", one.relay] : null,
      one.round_trip ? ["Answers within", latency(one.round_trip)] : null,
      one.let_in_by ? ["Let in by", one.let_in_by] : null,
      ["ID", h("code", null, one.id.slice(0, 16))],
    ),
    one.this
      ? null
      : h(
          "div",
          { class: "buttons" },
          button("Remove", () => removeDevice(app, one), { label: `Remove ${one.name}` }),
        ),
  );
}

// A machine about which others vote: who, and what can be done about it.
function accused(app, one) {
  const says = { keep: "says that it stays", suspend: "accuses it", remove: "wants it removed" };
  const left = one.final && one.votes.some((vote) => vote.id === one.id && vote.stance === "remove");
  if (left) {
    return card(`${one.name} has left`, { id: `accused-${one.id}` });
  }
  const [tone, words] = one.final
    ? ["quiet", "removed for good"]
    : one.suspended
      ? ["wary", "suspended"]
      : ["good", "kept"];
  const where = one.this ? " on another machine" : "";
  const until = one.until ? ` until ${moment(one.until)}` : "";
  return card(
    `Votes about ${one.name}`,
    { id: `accused-${one.id}`, aside: badge(tone, words) },
    one.votes.map((vote) =>
      h("p", vote.counts ? { class: "reason" } : null, `${vote.by} ${says[vote.stance]}.`),
    ),
    one.suspended
      ? [
          h("p", null, `That can be vetoed${where}${until}:`),
          one.this
            ? h("pre", null, `hybrisfs device keep ${one.id.slice(0, 8)}`)
            : h("div", { class: "buttons" }, keep(app, one)),
        ]
      : null,
  );
}

function keep(app, { id, name }) {
  const veto = () =>
    app.attempt(async () => {
      const { kept } = await ask(about(app.volume.name, "do/keep-device"), { device: id });
      toast(
        `${name} ${kept ? "belongs to the volume" : "does not belong to the volume yet"}.`,
        kept ? "good" : "bad",
      );
    });
  return button("Keep", veto, { label: `Keep ${name}` });
}

/** Be let into a volume of another machine, and mount it. */
export async function joinAndMount(app) {
  const name = await join(app);
  if (name) await mountVolume(app, name);
}

function another(app) {
  return card(
    "Another machine",
    null,
    h(
      "p",
      null,
      "To have this folder on another machine, invite it, and give it the code that is shown then.",
    ),
    h(
      "p",
      { class: "quiet" },
      "To have a folder of another machine here, too, join its volume with a code that it shows.",
    ),
    h(
      "div",
      { class: "buttons" },
      button("Invite", () => invite(app), { kind: "primary", label: "Invite another machine" }),
      button("Join a volume", () => joinAndMount(app)),
    ),
  );
}

function stale(app) {
  const blocks = app.volume.stale_reads === "block";
  const set = (how) => app.act("settings", { stale_reads: how }, "That holds from now on.");
  return card(
    "When a machine is silent",
    null,
    h(
      "p",
      null,
      blocks
        ? "Programs wait when they open a file that may be out of date."
        : "Files can be opened; this page says that changes may be missing.",
    ),
    h(
      "div",
      { class: "buttons" },
      blocks
        ? button("Only tell me", () => set("warn"))
        : button("Have programs wait instead", () => set("block")),
    ),
  );
}
