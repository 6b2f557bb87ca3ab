// Plots over time, drawn as SVG.

import { h } from "./vdom.js";
import { moment } from "./words.js";

const WIDTH = 600;
const HEIGHT = 120;

/**
 * Lines over time. `lines` are {name, cls, values}, with null where nothing is known; where `bridge` of a
 * line is not null it is drawn through that all the same: there was just nothing to measure. `show` makes
 * words of a value, `of` says of what it is where only the heading above does. Values are read off by pointing at the plot or with the arrow keys.
 */
export function plot(title, lines, { step, end, show, redraw, memory, of }) {
  const length = lines[0]?.values.length ?? 0;
  const top = Math.max(...lines.flatMap((one) => one.values.map((value) => value ?? 0)), 0);
  const scale = top > 0 ? top * 1.08 : 1;
  const at = memory.at !== null && memory.at < length ? memory.at : null;
  const point = (index) => {
    memory.at = Math.max(0, Math.min(length - 1, index));
    redraw();
  };
  const props = {
    class: "plot",
    viewBox: `0 0 ${WIDTH} ${HEIGHT}`,
    preserveAspectRatio: "none",
    role: "img",
    tabindex: 0,
    "aria-label": `${of ? `${title} of ${of}` : title}: ${lines.map((one) => described(one, show)).join("; ")}`,
    onpointermove: (event) => {
      const box = event.currentTarget.getBoundingClientRect();
      point(Math.floor(((event.clientX - box.left) / box.width) * length));
    },
    onpointerleave: () => {
      memory.at = null;
      redraw();
    },
    onblur: () => {
      memory.at = null;
      redraw();
    },
    onkeydown: (event) => {
      const move = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (move) {
        event.preventDefault();
        point((memory.at ?? length) + move);
      }
    },
  };
  return h(
    "figure",
    { class: "figure", key: title },
    h(
      "figcaption",
      null,
      h("span", { class: "plot-title" }, title),
      h(
        "span",
        { class: "legend" },
        lines.map((one) => legend(one, at, show)),
      ),
    ),
    h(
      "div",
      { class: "plot-box" },
      h("span", { class: "plot-top", "aria-hidden": "true" }, top > 0 ? show(top) : ""),
      h(
        "svg",
        props,
        [0.25, 0.5, 0.75].map((share) =>
          h("line", { class: "grid", x1: 0, x2: WIDTH, y1: HEIGHT * share, y2: HEIGHT * share }),
        ),
        lines.map((one) => [
          one.area ? h("path", { class: `area ${one.cls}`, d: path(one, scale, true) }) : null,
          h("path", { class: `line ${one.cls}`, d: path(one, scale, false) }),
        ]),
        at === null
          ? null
          : h("line", { class: "pointer", x1: x(at, length), x2: x(at, length), y1: 0, y2: HEIGHT }),
      ),
    ),
    h(
      "div",
      { class: "axis", "aria-hidden": "true" },
      at === null
        ? [h("span", null, moment(end - step * length)), h("span", null, moment(end))]
        : h("span", { class: "axis-at" }, moment(end - step * (length - at))),
    ),
  );
}

const x = (index, length) => Number((((index + 0.5) / length) * WIDTH).toFixed(1));

function path({ values, bridge }, scale, closed) {
  let d = "";
  let from = null;
  const y = (value) => Number((HEIGHT - 1 - (value / scale) * (HEIGHT - 2)).toFixed(1));
  const end = (index) => {
    if (closed && from !== null)
      d += `L${x(index, values.length)} ${HEIGHT}L${x(from, values.length)} ${HEIGHT}Z`;
  };
  values.forEach((value, index) => {
    if (value === null) {
      if (bridge && bridge[index] !== null) return;
      if (from !== null) end(index - 1);
      from = null;
      return;
    }
    if (from === null) {
      from = index;
      d += `M${x(index, values.length)} ${y(value)}`;
      if (!closed) d += "h.01"; // a single point shows, too
    } else d += `L${x(index, values.length)} ${y(value)}`;
  });
  if (from !== null) end(values.length - 1);
  return d;
}

function described(line, show) {
  const known = line.values.filter((value) => value !== null);
  if (!known.length) return `${line.name} not known yet`;
  return `${line.name} now ${show(known.at(-1))}, at most ${show(Math.max(...known))}`;
}

function legend(line, at, show) {
  const value = at === null ? line.values.findLast((one) => one !== null) : line.values[at];
  return h(
    "span",
    { class: "legend-item" },
    h("span", { class: `swatch ${line.cls}`, "aria-hidden": "true" }),
    `${line.name} `,
    h("b", null, value === null || value === undefined ? "–" : show(value)),
  );
}

/** A band that shows by colour how a cloud was, interval by interval. */
export function band(states, names) {
  const length = states.length;
  const runs = [];
  states.forEach((state, index) => {
    if (runs.length && runs.at(-1).state === state) runs.at(-1).length += 1;
    else runs.push({ state, from: index, length: 1 });
  });
  const known = states.filter((one) => one !== null);
  const good = known.length
    ? Math.round((100 * known.filter((one) => one <= 1).length) / known.length)
    : null;
  return h(
    "svg",
    {
      class: "band",
      viewBox: `0 0 ${length} 6`,
      preserveAspectRatio: "none",
      role: "img",
      "aria-label": good === null ? "Availability not known yet" : `Worked ${good} % of the time`,
    },
    runs
      .filter((run) => run.state !== null)
      .map((run) =>
        h("rect", { class: `state-${names[run.state]}`, x: run.from, y: 0, width: run.length, height: 6 }),
      ),
  );
}
