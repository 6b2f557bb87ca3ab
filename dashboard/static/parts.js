// What the sections are built from.

import { Failure } from "./api.js";
import { h, render } from "./vdom.js";
import { sentence } from "./words.js";

const ICONS = {
  good: "M12 2 21 5.500v6c0 5.600-3.800 9.500-9 11.500-5.200-2-9-5.900-9-11.500v-6zM7.500 12.200l3.200 3.200 6-6.200",
  busy: "M7 18a4.500 4.500 0 0 1-.5-9A6 6 0 0 1 18 8.500 4.800 4.800 0 0 1 17.500 18M12 21v-8.500m-3.200 3.200L12 12.500l3.200 3.200",
  wary: "M12 3 22 20.500H2zM12 9.500v5M12 17.400v.2",
  bad: "M12 2.500a9.500 9.500 0 1 1 0 19 9.500 9.500 0 0 1 0-19M12 7v6M12 16.400v.2",
  folder:
    "M3 6.500A1.500 1.500 0 0 1 4.500 5h4.600l2 2.500h8.400A1.500 1.500 0 0 1 21 9v8.500a1.500 1.500 0 0 1-1.500 1.500h-15A1.500 1.500 0 0 1 3 17.500z",
  file: "M6 3h8l4 4v14H6zM14 3v4h4",
  link: "M10 14a4 4 0 0 0 6 .4l3-3a4 4 0 0 0-5.700-5.700l-1.500 1.500M14 10a4 4 0 0 0-6-.4l-3 3a4 4 0 0 0 5.700 5.700l1.500-1.500",
  other: "M6 3h12v18H6z",
};

/** A drawing that says nothing that the words beside it do not say. */
export function icon(name, cls = "icon") {
  return h("svg", { class: cls, viewBox: "0 0 24 24", "aria-hidden": "true" }, h("path", { d: ICONS[name] }));
}

export function card(title, props, ...children) {
  const { id, wide, aside, ...rest } = props ?? {};
  const heading = id ?? `card-${title.toLowerCase().replace(/[^a-z]+/g, "-")}`;
  return h(
    "section",
    { class: wide ? "card wide" : "card", "aria-labelledby": heading, key: heading, ...rest },
    h("div", { class: "card-head" }, h("h2", { id: heading }, title), aside),
    ...children,
  );
}

/** Bring the card whose heading has this id to where it is seen, as far as it is not. */
export function reveal(heading) {
  document.getElementById(heading)?.closest("section").scrollIntoView({ block: "nearest" });
}

export const badge = (tone, words, title) => h("span", { class: `badge ${tone}`, title }, words);

export const empty = (words) => h("p", { class: "empty" }, words);

/** While nothing is known yet. */
export const looking = () => h("p", { class: "loading", role: "status" }, "Looking …");

/** A button; what `press` returns is awaited, and the button is off until then. */
export function button(words, press, { kind = "", label, disabled = false, title } = {}) {
  const onclick = async (event) => {
    const pressed = event.currentTarget;
    pressed.setAttribute("aria-busy", "true");
    try {
      await press(event);
    } finally {
      pressed.removeAttribute("aria-busy");
    }
  };
  return h("button", { type: "button", class: kind, onclick, disabled, title, "aria-label": label }, words);
}

/** How much of something there is. */
export function meter(part, whole, label, tone = "") {
  const share = whole > 0 ? Math.min(100, (100 * part) / whole) : 0;
  return h(
    "div",
    {
      class: `meter ${tone}`,
      role: "progressbar",
      "aria-label": label,
      "aria-valuemin": 0,
      "aria-valuemax": 100,
      "aria-valuenow": Math.round(share),
    },
    h("div", { style: { width: `${share}%` } }),
  );
}

/** A list of names and values. */
export function facts(...pairs) {
  return h(
    "dl",
    { class: "facts" },
    pairs
      .filter(Boolean)
      .map(([name, ...value]) => h("div", null, h("dt", null, name), h("dd", null, ...value))),
  );
}

/** A field of a form with its label, and a hint in small letters. `more`: properties of the input. */
export function field(name, words, hint, more) {
  return h(
    "label",
    { key: name },
    h("span", null, words, hint ? h("small", null, ` ${hint}`) : null),
    h("input", { name, spellcheck: "false", autocomplete: "off", ...more }),
  );
}

/**
 * Open a dialog with what `content(here)` returns; resolves to what `here.close(answer)` was given, undefined
 * for Escape. Nothing that was typed in it is left when it closes. `here.redraw()` shows it again;
 * `here.submit(work)` is for a form: `work` gets the form, and what it throws as `Failure` is shown by
 * `trouble(here)`.
 */
export function dialog(title, content) {
  return new Promise((resolve) => {
    const shown = document.createElement("dialog");
    let answer;
    const end = () => {
      shown.remove();
      resolve(answer);
    };
    const here = {
      failure: null,
      busy: false,
      firm: false, // Escape does not close it
      close(value) {
        answer = value;
        shown.close();
        end(); // at once: it may have held a secret, and the event comes later
      },
      redraw() {
        if (!shown.isConnected) return;
        render(shown, h("h2", { id: "question", key: "title" }, title), content(here));
        if (shown.open && !shown.contains(document.activeElement))
          shown.querySelector("input, select, textarea, button")?.focus(); // what had it is gone
      },
      submit: (work) => async (event) => {
        event.preventDefault();
        if (here.busy) return;
        Object.assign(here, { failure: null, busy: true });
        here.redraw();
        try {
          await work(event.target);
        } catch (error) {
          if (!(error instanceof Failure)) throw error;
          here.failure = error;
        } finally {
          here.busy = false;
          here.redraw();
        }
      },
    };
    shown.setAttribute("aria-labelledby", "question");
    shown.oncancel = (event) => {
      if (here.firm) event.preventDefault();
    };
    shown.onclose = end;
    document.body.append(shown);
    here.redraw();
    shown.showModal();
  });
}

/** What went wrong in a dialog, if anything did. */
export function trouble({ failure }) {
  if (!failure) return null;
  return h(
    "p",
    { class: "reason", role: "alert", key: "trouble" },
    sentence(failure.message),
    " ",
    failure.advice,
  );
}

/** The buttons of a form in a dialog. */
export function choices(here, yes) {
  return h(
    "div",
    { class: "buttons", key: "choices" },
    button("Cancel", () => here.close()),
    h("button", { class: "primary", disabled: here.busy }, yes),
  );
}

/** The button below what a dialog only tells. */
export function closing(here) {
  return h(
    "div",
    { class: "buttons", key: "closing" },
    button("Close", () => here.close(), { kind: "primary" }),
  );
}

/** Ask whether that is meant; resolves to true or false. */
export async function confirm(question, explanation, yes) {
  const answer = await dialog(question, (here) => [
    h("p", null, explanation),
    h(
      "div",
      { class: "buttons" },
      button("Cancel", () => here.close()),
      button(yes, () => here.close(true), { kind: "primary" }),
    ),
  ]);
  return answer === true;
}

/** What a person should know of what was done; one sentence each, as the commands say them. */
export const notes = (warnings) =>
  (warnings ?? []).map((one) => h("p", { class: "reason", key: `note ${one}` }, `Note: ${one}.`));

/** Say something for a few seconds. */
export function toast(words, tone = "good") {
  const one = document.createElement("p");
  one.className = `toast ${tone}`;
  one.textContent = words;
  document.getElementById("toasts").append(one);
  setTimeout(() => one.remove(), tone === "bad" ? 12000 : 5000);
}
