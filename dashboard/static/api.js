// Talking to the process that serves this page. The code in the link is exchanged for a token, once; the
// token stays in this tab and travels in a header.

const KEPT = "hybrisfs-token";
const tags = new Map(); // url -> {tag, facts}: what has not changed is not sent again

/** What went wrong, and what to do about it. */
export class Failure extends Error {
  constructor(message, advice, status) {
    super(message);
    this.advice = advice;
    this.status = status;
  }
}

/** Become allowed to ask; returns what the link wants to be shown. Throws `Failure` when it was used before. */
export async function begin() {
  const link = new URLSearchParams(location.hash.slice(1));
  const code = link.get("code");
  if (!code) return link;
  history.replaceState(null, "", `/#${link.get("section") ?? "overview"}`);
  const { token } = await ask("/api/session", { code });
  sessionStorage.setItem(KEPT, token);
  return link;
}

/** What a GET returns; the very same object as before when nothing has changed. */
export async function get(url) {
  const known = tags.get(url);
  const headers = known ? { "If-None-Match": known.tag } : {};
  const response = await send(url, { headers });
  if (response.status === 304 && known) {
    await response.arrayBuffer(); // a body that nobody reads counts as an aborted request
    return known.facts;
  }
  const facts = await read(response);
  tags.set(url, { tag: response.headers.get("ETag"), facts });
  return facts;
}

/** What a POST returns. */
export async function ask(url, body) {
  const options = {
    method: "POST",
    body: JSON.stringify(body),
    headers: { "Content-Type": "application/json" },
  };
  return read(await send(url, options));
}

/** The address of something about a volume. */
export function about(volume, what) {
  return `/api/volumes/${encodeURIComponent(volume)}/${what}`;
}

async function send(url, options) {
  options.headers["X-HybrisFS-Token"] = sessionStorage.getItem(KEPT) ?? "";
  try {
    return await fetch(url, { ...options, cache: "no-store", credentials: "omit", redirect: "error" });
  } catch {
    throw new Failure("The program behind this page has ended.", "Run hybrisfs ui again.", 0);
  }
}

async function read(response) {
  const text = await response.text();
  let facts = { error: text.trim(), advice: "" };
  if (response.headers.get("Content-Type") === "application/json") facts = JSON.parse(text);
  if (!response.ok)
    throw new Failure(facts.error || `answer ${response.status}`, facts.advice ?? "", response.status);
  return facts;
}
