// QR codes, which the server tells as lines of half blocks, as a terminal shows them: a block is light.

import { h } from "./vdom.js";

const ROWS = { "█": [0, 0], "▀": [0, 1], "▄": [1, 0], " ": [1, 1] }; // dark above, dark below

/** A drawing of such lines, with the words that say what it is. */
export function qr(lines, words) {
  const width = lines[0]?.length ?? 0;
  const height = lines.length * 2;
  const dark = lines.flatMap((line, y) =>
    [...line].flatMap((char, x) =>
      (ROWS[char] ?? [0, 0]).map((one, below) => (one ? `M${x} ${2 * y + below}h1v1h-1z` : "")),
    ),
  );
  return h(
    "svg",
    { key: "qr", class: "qr", viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": words },
    h("rect", { width, height, class: "qr-light" }),
    h("path", { d: dark.join(""), class: "qr-dark" }),
  );
}
