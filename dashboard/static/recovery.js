// Recovery kits: what hybrisfs recovery make, show and remove do. A passphrase stands in the dialog that
// shows it once, and nowhere else on the page.

import { about, ask, Failure } from "./api.js";
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
    { aside: known?.kits && !kits.length ? badge("wary", "no kit") : null },
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
          : h(
              "p",
              null,
              "If all machines were lost, so would be the volume. Make a recovery kit, print it, and write its passphrase on it.",
            ),
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
  let own = false;
  await dialog("Make a recovery kit", (here) => {
    if (made) return shown(here, made);
    const onsubmit = here.submit(async (form) => {
      const { passphrase, again } = form.elements;
      if (own && passphrase.value !== again.value)
        throw new Failure("the two passphrases are not the same", "", 400);
      made = await ask(about(volume, "do/make-kit"), own ? { passphrase: passphrase.value } : {});
      here.firm = true;
    });
    const choose = (event) => {
      own = event.target.checked;
      here.redraw();
    };
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
      h(
        "label",
        { class: "check", key: "own" },
        h("input", { type: "checkbox", name: "own", onchange: choose }),
        "Use a passphrase of my own instead",
      ),
      own
        ? [
            // for password managers, which tell passphrases apart by it
            h("input", { key: "of", hidden: true, autocomplete: "username", value: `recovery kit of ${volume}` }),
            secret("passphrase", "The passphrase"),
            secret("again", "The same again"),
          ]
        : null,
      trouble(here),
      choices(here, "Make"),
    );
  });
  made = null;
  app.again();
}

const secret = (name, words) =>
  h(
    "label",
    { key: name },
    words,
    h("input", {
      type: "password",
      name,
      required: true,
      spellcheck: "false",
      autocomplete: "new-password",
    }),
  );

function shown(here, kit) {
  const lacking = kit.clouds
    .filter((one) => one.state !== "complete")
    .map((one) => `${one.name} (${one.state})`);
  return [
    h(
      "p",
      { key: "what" },
      `Recovery kit ${kit.kit.slice(0, 8)} of the volume ${kit.name}. ${kit.passphrase ? "Its passphrase, which is shown this once:" : "Its passphrase is the one that you have given."}`,
    ),
    kit.passphrase
      ? [
          h("pre", { key: "passphrase", class: "passphrase" }, kit.passphrase),
          h("p", { key: "bits" }, `It is as hard to guess as a random number of ${kit.bits} bits.`),
        ]
      : null,
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
