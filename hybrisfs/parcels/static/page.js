"use strict";

const HEAD = 2n ** 64n - 1n;
const DATA = new TextEncoder().encode("hybrisfs parcel 1");
const UNITS = ["bytes", "kB", "MB", "GB"];

const parcel = JSON.parse(document.getElementById("parcel").textContent);
const [nameOf, sizeOf, bar, state, take] = ["name", "size", "bar", "state", "take"].map((id) =>
  document.getElementById(id),
);

/** What is wrong, in words for a person. */
class Trouble extends Error {}

function bytesOf(text) {
  return Uint8Array.from(atob(text), (one) => one.charCodeAt(0));
}

function inUnits(bytes) {
  const unit = Math.min(UNITS.length - 1, Math.floor(Math.log10(Math.max(bytes, 1)) / 3));
  return `${unit ? (bytes / 1000 ** unit).toFixed(1) : bytes} ${UNITS[unit]}`;
}

async function keyInLink() {
  if (!globalThis.crypto?.subtle) throw new Trouble("Browsers open encrypted files on pages with https only.");
  const text = location.hash.slice(1);
  if (!/^[A-Za-z0-9_-]{43}$/.test(text))
    throw new Trouble("The link is not whole: what stands behind its # is missing or was changed.");
  const raw = bytesOf(text.replaceAll("-", "+").replaceAll("_", "/"));
  return crypto.subtle.importKey("raw", raw, "AES-GCM", false, ["decrypt"]);
}

async function opened(key, number, sealed) {
  const nonce = new Uint8Array(12);
  new DataView(nonce.buffer).setBigUint64(4, number);
  try {
    return await crypto.subtle.decrypt({ name: "AES-GCM", iv: nonce, additionalData: DATA }, key, sealed);
  } catch {
    throw new Trouble("This cannot be opened: the link was changed, or the file was changed where it is stored.");
  }
}

async function fetched(url) {
  let answer;
  try {
    answer = await fetch(url, { credentials: "omit", referrerPolicy: "no-referrer" });
  } catch {
    throw new Trouble("The place where the file is stored cannot be reached. Try again later.");
  }
  if (!answer.ok) throw new Trouble("The link has ended, or was revoked. Ask for another one.");
  return answer.arrayBuffer();
}

async function download(key, head) {
  const parts = [];
  let size = 0;
  bar.hidden = false;
  for (let number = 0; number < head.pieces; number++) {
    const part = await opened(key, BigInt(number), await fetched(parcel.pieces[number]));
    size += part.byteLength;
    parts.push(new Blob([part]));
    bar.value = size / Math.max(head.size, 1);
    state.textContent = `${inUnits(size)} of ${inUnits(head.size)}`;
  }
  if (size !== head.size) throw new Trouble("The file is not whole where it is stored.");
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob(parts, { type: "application/octet-stream" }));
  link.download = head.name;
  link.click();
  bar.hidden = true;
  state.textContent = "Downloaded.";
}

async function attempt(work) {
  take.disabled = true;
  try {
    await work();
  } catch (error) {
    bar.hidden = true;
    state.textContent = error instanceof Trouble ? error.message : `This went wrong: ${error}`;
  }
  take.disabled = false;
}

attempt(async () => {
  const key = await keyInLink();
  const head = JSON.parse(new TextDecoder().decode(await opened(key, HEAD, bytesOf(parcel.head))));
  if (head.pieces !== parcel.pieces.length) throw new Trouble("The file is not whole where it is stored.");
  nameOf.textContent = document.title = head.name;
  sizeOf.textContent = inUnits(head.size);
  state.textContent = "";
  take.hidden = false;
  take.onclick = () => attempt(() => download(key, head));
});
