// What the clouds charge.

import { card, empty, facts } from "./parts.js";
import { h } from "./vdom.js";
import { aboutMoney, count, money, size } from "./words.js";

export const cost = {
  id: "cost",
  title: "Cost",
  needs: () => [{ name: "cost", every: 30 }],
  view(app) {
    const known = app.data.cost;
    if (known?.failure) return empty(known.failure.message);
    if (!known) return null;
    const charged = known.clouds.filter((one) => one.bill);
    const sentence = charged.length
      ? capital(`${aboutMoney(known.total)} a month.`)
      : "None of your clouds has a known price.";
    const meaning = charged.length
      ? `What is stored now for a whole month, and what this machine has asked for and fetched in ${month(known.month)}. Left out are free allowances, minimum charges, taxes, and what clouds still keep of what was deleted; your other machines' requests come on top.`
      : "What a disk or server of your own, or another provider, costs is unknown, and counts as nothing.";
    return [
      h(
        "section",
        { class: "hero", key: "hero" },
        h(
          "div",
          null,
          h("p", { class: "sentence" }, sentence),
          h("p", { class: "meaning" }, meaning),
          known.archive?.archived ? h("p", { class: "meaning" }, archived(known.archive)) : null,
          h("p", { class: "meaning" }, prices(known)),
          known.problem ? h("p", { class: "meaning" }, known.problem) : null,
        ),
      ),
      h(
        "div",
        { class: "grid-cards slim", key: "clouds" },
        known.clouds.map((one) => cloud(one, known)),
      ),
    ];
  },
};

const capital = (words) => words[0].toUpperCase() + words.slice(1);

const archived = (archive) =>
  `The archive takes ${size(archive.stored)} of that, ${size(archive.saved)} less than before` +
  (archive.dollars ? `, which saves ${aboutMoney(archive.dollars)} a month.` : ".");

const prices = (known) =>
  `List prices are of ${known.looked_up}; hybrisfs cloud price CLOUD --storage 0.02 sets another one, ` +
  "in USD for a GB and month.";

const whose = (one, known) =>
  one.prices && one.prices.source === known.own_prices ? "your own price" : one.provider;

const month = (name) =>
  new Date(`${name}-15T12:00`).toLocaleDateString([], { month: "long", year: "numeric" });

function cloud(one, known) {
  const { use, bill } = one;
  return card(
    one.name,
    { id: `cost-${one.name}`, aside: h("span", null, bill ? money(bill.total) : "price unknown") },
    whose(one, known) ? h("p", { class: "quiet" }, whose(one, known)) : null,
    facts(
      ["Stored", size(one.stored), bill ? ` · ${money(bill.storage)}` : ""],
      one.archived ? ["Archived, of these", size(one.archived)] : null,
      ["Fetched this month", size(use.down), bill ? ` · ${money(bill.egress)}` : ""],
      ["Sent this month", size(use.up)],
      [
        "Requests this month",
        `${count(use.put, "write")}, ${count(use.get, "read")}, ${count(use.list, "listing")}, ${count(use.delete, "deletion")}`,
        bill ? ` · ${money(bill.put + bill.get)}` : "",
      ],
    ),
  );
}
