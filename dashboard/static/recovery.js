// Recovery kits: what hybrisfs recovery make, show and remove do. A passphrase stands in the dialog that
// shows it once, and nowhere else on the page.

import { about, ask } from "./api.js";
import { badge, button, card, choices, confirm, dialog, empty, trouble } from "./parts.js";
import { h } from "./vdom.js";
import { count, list, moment } from "./words.js";

/** The kits of the volume. */
export function recovery(app) {
  const known = app.data.recovery;
  const kits = known?.kits ?? [];
  const make = button("Make a recovery kit", () => makeKit(app), { kind: kits.length ? "" : "primary" });
  return card(
    "If all machines are lost",
    null,
    known?.failure
      ? empty(known.failure.message)
      : !known
        ? empty("Looking …")
        : kits.length
          ? h(
              "ul",
              { class: "rows" },
              kits.map((kit) => row(app, kit)),
            )
          : [
              h("p", null, badge("wary", "no kit")),
              h(
                "p",
                null,
                "If all machines were lost, so would be the volume. Make a kit, print it, and write its passphrase on it.",
              ),
            ],
    h("div", { class: "buttons" }, make),
  );
}

function row(app, kit) {
  const lacking = kit.clouds.filter((one) => one.state !== "complete").length;
  return h(
    "li",
    { key: kit.kit },
    h("span", { class: "name" }, h("code", null, kit.kit), ` made ${moment(kit.created)}`),
    h(
      "span",
      { class: "buttons" },
      kit.used
        ? badge("wary", "was used")
        : kit.complete
          ? badge("good", "on all clouds")
          : badge("wary", `lacking on ${count(lacking, "cloud")}`),
      button("Remove", () => removeKit(app, kit.kit), { label: `Remove the recovery kit ${kit.kit}` }),
    ),
  );
}

/** Make a kit, and show its passphrase once. */
export async function makeKit(app) {
  const { name: volume } = app.volume;
  let made = null;
  await dialog("Make a recovery kit", (here) => {
    if (made) return shown(here, made);
    const onsubmit = here.submit(async () => {
      made = await ask(about(volume, "do/make-kit"), {});
      here.firm = true;
    });
    return h(
      "form",
      { key: "form", onsubmit },
      h(
        "p",
        { key: "what" },
        "The keys are on your machines only. If all of these are lost, only a recovery kit brings the volume back: a passphrase on paper, and your clouds.",
      ),
      h(
        "p",
        { key: "once" },
        "Its passphrase is drawn at random and shown once. Write it down and keep it away from the machines.",
      ),
      trouble(here),
      choices(here, "Make"),
    );
  });
  made = null;
  app.again();
}

function shown(here, kit) {
  const lacking = kit.clouds
    .filter((one) => one.state !== "complete")
    .map((one) => `${one.name} (${one.state})`);
  return [
    h(
      "p",
      { key: "what" },
      `Recovery kit ${kit.kit.slice(0, 8)} of the volume ${kit.name}. Its passphrase, which is shown this once:`,
    ),
    h("pre", { key: "passphrase", class: "passphrase" }, kit.passphrase),
    h("p", { key: "bits" }, `It is as hard to guess as a random number of ${kit.bits} bits.`),
    h(
      "p",
      { key: "where", class: lacking.length ? "reason" : "" },
      lacking.length
        ? `These clouds do not have the kit yet, and get it when they can be reached: ${list(lacking)}.`
        : "All clouds have the kit.",
    ),
    h(
      "p",
      { key: "print" },
      "Print the page, which is without the passphrase, and write that on it by hand, now.",
    ),
    h(
      "pre",
      { key: "page", class: "printed", role: "region", "aria-label": "The page", tabindex: 0 },
      kit.pages.text,
    ),
    h(
      "div",
      { class: "buttons", key: "buttons" },
      button("Print", () => print(), { kind: "primary" }),
      button("I have written it down", () => here.close()),
    ),
  ];
}

/** Make a kit worthless. */
async function removeKit(app, kit) {
  const explanation =
    "It opens nothing that is written from now on; what it has opened before may be known to those who have the passphrase.";
  if (!(await confirm(`Remove the recovery kit ${kit} for good?`, explanation, "Remove"))) return;
  await app.act(
    "remove-kit",
    { kit },
    `The recovery kit ${kit} opens nothing any more that is written from now on.`,
  );
}
