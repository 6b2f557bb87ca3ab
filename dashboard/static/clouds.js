// How the clouds do, now and over the last hour and day.

import { changes } from "./cloud_changes.js";
import { addCloud, drainCloud, isFolder, logIn, testCloud } from "./cloud_forms.js";
import { badge, button, card, empty, facts, notes } from "./parts.js";
import { band, plot } from "./plot.js";
import { jobs } from "./transfers.js";
import { h } from "./vdom.js";
import { ago, cloudState, count, latency, moment, rate, size } from "./words.js";

const STATES = ["ok", "slow", "full", "lying", "refusing", "down"];
const SPANS = { hour: "Last hour", day: "Last day" };

export const clouds = {
  id: "clouds",
  title: "Clouds",
  needs: (app) => [
    { name: `history?span=${app.memory("span", { value: "hour" }).value}`, every: 10 },
    { name: "clouds", every: 20 },
    { name: "jobs", every: 1, url: "/api/jobs" },
  ],
  view(app) {
    const span = app.memory("span", { value: "hour" });
    const history = app.data[`history?span=${span.value}`];
    const stored = app.data.clouds?.clouds ?? [];
    return [
      h(
        "div",
        { class: "toolbar", key: "toolbar" },
        h(
          "div",
          { class: "choice", role: "group", "aria-label": "Time shown" },
          Object.entries(SPANS).map(([name, words]) =>
            h(
              "button",
              {
                key: name,
                type: "button",
                "aria-pressed": String(span.value === name),
                onclick: () => {
                  span.value = name;
                  app.redraw();
                },
              },
              words,
            ),
          ),
        ),
        h(
          "div",
          { class: "buttons" },
          button("Add a cloud", () => addCloud(app), { kind: "primary" }),
          button("Look again", () => app.attempt(() => fetchAgain(app)), { title: "Ask all clouds now" }),
          button("Verify a sample", () => app.begin("scrub", { sample: 5 }), {
            title: "Read and verify 5 % of what the clouds hold",
          }),
          button("Verify everything", () => app.begin("scrub", { sample: 100 }), {
            title: "Downloads everything that the clouds hold",
          }),
          button("Repair", () => app.begin("repair"), { title: "Rebuild what a cloud has lost or damaged" }),
        ),
      ),
      notes(app.data.clouds?.warnings),
      jobs(app),
      h(
        "div",
        { class: "grid-cards slim", key: "clouds" },
        app.volume.clouds.map((one) =>
          cloud(
            app,
            one,
            stored.find((other) => other.name === one.name),
            history,
          ),
        ),
      ),
    ];
  },
};

function checked({ share, since }) {
  return since ? `${Math.round(100 * share)} % since ${moment(since)}` : "not yet";
}

async function fetchAgain(app) {
  const { get } = await import("./api.js");
  app.volumes = (await get("/api/volumes?look=1")).volumes;
}

function cloud(app, facts_, stored, history) {
  const [tone, words] = cloudState(facts_.state);
  const series = history?.clouds?.find((one) => one.name === facts_.name);
  const id = `cloud-${facts_.name}`;
  const common = history && { ...history, of: facts_.name, redraw: app.redraw };
  const memory = (name) => app.memory(`${facts_.name} ${name}`, { at: null });
  return card(
    facts_.name,
    { id, aside: badge(tone, words) },
    facts_.reason ? h("p", { class: "reason" }, facts_.reason) : null,
    facts(
      ["Address", facts_.url],
      facts_.state === "ok" ? null : ["Since", ago(facts_.since)],
      ["Stored", stored ? `${size(stored.bytes)} in ${count(stored.objects, "object")}` : "…"],
      ["Checked", stored ? checked(stored.checked) : "…"],
      stored && stored.use !== "in use"
        ? ["Use", stored.use + (stored.trouble ? `: ${stored.trouble}` : "")]
        : null,
    ),
    series
      ? [
          band(series.state, STATES),
          plot(
            "Answer time",
            [
              { name: "Read", cls: "read", values: series.read, bridge: series.state },
              { name: "Write", cls: "write", values: series.write, bridge: series.state },
            ],
            { ...common, show: latency, memory: memory("latency") },
          ),
          plot(
            "Speed",
            [
              { name: "Up", cls: "up", values: series.up, area: true },
              { name: "Down", cls: "down", values: series.down },
            ],
            { ...common, show: rate, memory: memory("speed") },
          ),
        ]
      : empty("Plots begin in a moment."),
    h(
      "div",
      { class: "buttons" },
      button("Test", () => testCloud(app, facts_.name), { label: `Test ${facts_.name}` }),
      isFolder(facts_.url)
        ? null
        : button("Log in", () => logIn(app, facts_.url), { label: `Log in to ${facts_.name}` }),
      stored?.use === "in use"
        ? button("Drain", () => drainCloud(app, facts_.name), { label: `Drain ${facts_.name}` })
        : null,
    ),
    changes(app, facts_.name),
  );
}
