// What the clouds charge.

import { card, empty, facts } from "./parts.js";
import { h } from "./vdom.js";
import { count, money, size } from "./words.js";

export const cost = {
  id: "cost",
  title: "Cost",
  needs: () => [{ name: "cost", every: 30 }],
  view(app) {
    const known = app.data.cost;
    if (known?.failure) return empty(known.failure.message);
    if (!known) return empty("Looking …");
    const charged = known.clouds.filter((one) => one.bill);
    const sentence = charged.length
      ? `About ${money(known.total)} a month.`
      : "None of your clouds has a list price.";
    const meaning = charged.length
      ? `What is stored now for a whole month, and what this machine has asked for and fetched in ${month(known.month)}, at list prices of ${known.looked_up}. Free allowances, minimum charges and taxes are left out; your other machines' requests come on top.`
      : "Disks, servers of your own and providers whose prices are not known cost nothing here.";
    return [
      h(
        "section",
        { class: "hero", key: "hero" },
        h(
          "div",
          null,
          h("p", { class: "sentence" }, sentence),
          h("p", { class: "meaning" }, meaning),
          known.archived ? h("p", { class: "meaning" }, archived(known)) : null,
        ),
      ),
      h("div", { class: "grid-cards", key: "clouds" }, known.clouds.map(cloud)),
    ];
  },
};

const archived = (known) =>
  `The archive takes ${size(known.archived)} of that` +
  (known.saved ? `, and saves about ${money(known.saved)} a month.` : ".");

const month = (name) =>
  new Date(`${name}-15T12:00`).toLocaleDateString([], { month: "long", year: "numeric" });

function cloud(one) {
  const { use, bill } = one;
  return card(
    one.name,
    { id: `cost-${one.name}`, aside: h("span", null, bill ? money(bill.total) : "no list price") },
    one.provider ? h("p", { class: "quiet" }, one.provider) : null,
    facts(
      ["Stored", size(one.stored), bill ? ` · ${money(bill.storage)}` : ""],
      ["Fetched this month", size(use.down), bill ? ` · ${money(bill.get)} with requests` : ""],
      ["Sent this month", size(use.up), bill ? ` · ${money(bill.put)} with requests` : ""],
      [
        "Requests this month",
        `${count(use.put, "write")}, ${count(use.get, "read")}, ${count(use.list, "listing")}, ${count(use.delete, "deletion")}`,
      ],
    ),
  );
}
