// What is to be shown as plain objects, and the smallest change of the page that shows it: so a page that
// is refreshed every few seconds keeps its focus, its selection and its scroll position. Text is only ever
// set as text, never parsed as HTML.

const SVG = "http://www.w3.org/2000/svg";
const DRAWING = new Set(["svg", "path", "line", "rect", "circle", "g", "text", "title"]);

/** An element: `h("p", {class: "note", onclick: f, style: {width: "3px"}, key: 7}, "text", h("b", ...))`. */
export function h(tag, props, ...children) {
  return { tag, props: props ?? {}, children: normal(children) };
}

/** Make `container` hold exactly `nodes`. */
export function render(container, ...nodes) {
  reconcile(container, normal(nodes));
}

function normal(children) {
  return children
    .flat(Infinity)
    .filter((child) => child !== null && child !== undefined && child !== false)
    .map((child) => (typeof child === "object" ? child : { text: String(child) }));
}

function reconcile(parent, wanted) {
  const keyed = new Map();
  for (const child of parent.childNodes) {
    if (child.ourKey !== undefined) keyed.set(child.ourKey, child);
  }
  let at = parent.firstChild;
  for (const node of wanted) {
    const key = node.props?.key;
    let found = key !== undefined ? keyed.get(key) : at;
    if (found && !fits(found, node)) found = null;
    if (!found) {
      found = create(node, parent);
      parent.insertBefore(found, at);
    } else {
      if (found === at) at = at.nextSibling;
      else parent.insertBefore(found, at);
      update(found, node);
    }
  }
  while (at) {
    const next = at.nextSibling;
    at.remove();
    at = next;
  }
}

function fits(dom, node) {
  if (node.text !== undefined) return dom.nodeType === Node.TEXT_NODE;
  return dom.nodeType === Node.ELEMENT_NODE && dom.localName === node.tag && dom.ourKey === node.props.key;
}

function create(node, parent) {
  if (node.text !== undefined) return document.createTextNode(node.text);
  const drawing = DRAWING.has(node.tag) && (node.tag === "svg" || parent.namespaceURI === SVG);
  const dom = drawing ? document.createElementNS(SVG, node.tag) : document.createElement(node.tag);
  dom.ourKey = node.props.key;
  dom.ourProps = {};
  update(dom, node);
  return dom;
}

function update(dom, node) {
  if (node.text !== undefined) {
    if (dom.data !== node.text) dom.data = node.text;
    return;
  }
  const before = dom.ourProps;
  for (const name of Object.keys(before)) if (!(name in node.props)) set(dom, name, undefined);
  for (const [name, value] of Object.entries(node.props))
    if (name !== "value" && before[name] !== value) set(dom, name, value);
  dom.ourProps = node.props;
  reconcile(dom, node.children);
  // The value of a choice is one of its options, which are there only now. What somebody is typing stays.
  const { value } = node.props;
  if (value !== undefined && before.value !== value && document.activeElement !== dom) dom.value = value;
}

function set(dom, name, value) {
  if (name === "key") return;
  if (name.startsWith("on")) dom[name] = value ?? null;
  else if (name === "style")
    for (const [property, one] of Object.entries(value ?? {})) dom.style.setProperty(property, one);
  else if (name === "checked" || name === "open" || name === "disabled") dom[name] = Boolean(value);
  else if (value === undefined || value === null || value === false) dom.removeAttribute(name);
  else dom.setAttribute(name, value === true ? "" : value);
}
