// Facts as people say them.

const UNITS = ["bytes", "kB", "MB", "GB", "TB", "PB"];

/** "3.1 MB" */
export function size(bytes) {
  let unit = 0;
  while (bytes >= 999.5 && unit < UNITS.length - 1) {
    bytes /= 1000;
    unit += 1;
  }
  if (unit === 0) return bytes === 1 ? "1 byte" : `${Math.round(bytes)} bytes`;
  return `${bytes >= 99.95 ? bytes.toFixed(0) : bytes.toFixed(1)} ${UNITS[unit]}`;
}

export const rate = (bytes) => `${size(bytes)}/s`;

/** "1 file", "12,345 files" */
export const count = (number, noun) => `${number.toLocaleString("en")} ${noun}${number === 1 ? "" : "s"}`;

/** 0.0423 s as "42 ms" */
export function latency(seconds) {
  if (seconds < 1) return `${Math.max(1, Math.round(seconds * 1000))} ms`;
  return `${seconds.toFixed(1)} s`;
}

/** "2 minutes" */
export function duration(seconds) {
  const steps = [
    ["second", 60],
    ["minute", 60],
    ["hour", 24],
    ["day", Infinity],
  ];
  let value = Math.max(0, seconds);
  for (const [unit, most] of steps) {
    if (Math.round(value) < most) return count(Math.round(value), unit);
    value /= most;
  }
  return "";
}

export function ago(epoch) {
  const seconds = Date.now() / 1000 - epoch;
  return seconds < 20 ? "just now" : `${duration(seconds)} ago`;
}

/** A time of day, with the day when it is not today; to the second if that is wanted. */
export function moment(epoch, exactly = false) {
  const when = new Date(epoch * 1000);
  const second = exactly ? "2-digit" : undefined;
  const time = when.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", second });
  if (when.toDateString() === new Date().toDateString()) return time;
  return `${when.toLocaleDateString([], { year: "numeric", month: "short", day: "numeric" })}, ${time}`;
}

/** "a", "a and b", "a, b and c" */
export function list(names) {
  return names.length < 2 ? names.join("") : `${names.slice(0, -1).join(", ")} and ${names.at(-1)}`;
}

/** The machines of a volume, this one first. */
export const machines = (volume) => [...volume.devices].sort((one, other) => other.this - one.this);

/** Words with the full stop that messages for a terminal do without. */
export const sentence = (words) => (words.endsWith(".") ? words : `${words}.`);

export const money = (dollars) => (dollars > 0 && dollars < 0.01 ? "under $0.01" : `$${dollars.toFixed(2)}`);

/** A guess: "about $1.83", "under $0.01" */
export const aboutMoney = (dollars) => (dollars > 0 && dollars < 0.01 ? "" : "about ") + money(dollars);

const TONES = { ok: "good", slow: "wary", full: "wary", lying: "bad", refusing: "bad", down: "bad" };

const FAILS = {
  full: "has been full",
  lying: "has returned wrong data",
  refusing: "has refused the credentials",
  down: "has not answered",
};

/** How a cloud is: a tone and the word that the commands have for it. */
export const cloudState = (state) => [TONES[state] ?? "quiet", state];

function clouds(volume, names) {
  const known = volume.clouds.filter((one) => names.includes(one.name));
  return list(
    known.map(
      (one) => `${one.name} ${FAILS[one.state] ?? `has been ${one.state}`} since ${moment(one.since)}`,
    ),
  );
}

const are = (number) => (number === 1 ? "is" : "are");

/** The one sentence about a volume: a tone, the sentence, and what it means. */
export function summary(volume) {
  const { verdict } = volume;
  const number = volume.pending_files;
  const wait = number === 1 ? "waits" : "wait";
  if (verdict.level !== "removed" && verdict.level !== "danger" && machinesOnly(volume) && !number) {
    return [verdict.level === "pending" ? "busy" : "bad", ...elsewhere(volume)];
  }
  switch (verdict.level) {
    case "removed":
      return [
        "bad",
        "This machine was removed from the volume.",
        "What changes here reaches no other machine. Copy what you need to a folder of its own.",
      ];
    case "safe":
      return ["good", "All safe.", kept(volume)];
    case "pending":
      return [
        "busy",
        `${count(number, "change")} ${are(number)} on the way to the clouds.`,
        `${number === 1 ? "It is" : "They are"} safe on this machine until then.${though(volume)}`,
      ];
    case "held":
      return ["wary", `${count(number, "change")} ${wait} on this machine.`, hold(volume.transfers)];
    case "short":
      return [
        "bad",
        `${count(number, "change")} ${wait} on this machine.`,
        `${count(verdict.needed, "cloud")} are needed, and ${verdict.working} of ${volume.clouds.length} work: ${clouds(volume, verdict.unwritable)}.`,
      ];
    case "degraded":
      return [
        "wary",
        `All safe, though ${clouds(volume, verdict.unwritable)}.`,
        "Everything can be read from the other clouds.",
      ];
    case "danger":
      return [
        "bad",
        "Some files may be unreadable just now.",
        `${clouds(volume, verdict.unreadable)}. What is kept on this machine can be read; the rest when the clouds are back.`,
      ];
    case "unmounted": {
      const { directory, reason } = volume.missing_mount;
      return ["bad", `Not mounted at ${directory}, as it should be.`, reason];
    }
    default:
      return ["bad", "This volume cannot be used.", volume.last_error ?? "The log tells why."];
  }
}

/** Whether other devices wrote files that no cloud is known to have. */
export const machinesOnly = (volume) =>
  Boolean(volume.machines_only?.files || volume.machines_only?.devices.length);

/** What is said of these files. */
function elsewhere(volume) {
  const { files, devices } = volume.machines_only;
  const some = `${files ? count(files, "file") : "Some changes"} ${are(files)} on your machines only.`;
  if (!devices.length) return [some, "No cloud has them yet."];
  const have = devices.length === 1 ? "has" : "have";
  const them = files === 1 ? "it" : "them";
  return [some, `${devices.join(" and ")} ${have} yet to put ${them} on the clouds.`];
}

function kept(volume) {
  const { f, clouds: all, ignored, verdict } = volume;
  const loss = f === 1 ? "any one of them" : `any ${f} of them`;
  const promise = f ? ` You would lose nothing if ${loss} vanished.` : "";
  const what = ignored.files ? "Everything but what ignore rules keep here" : "Everything";
  return `${what} is on ${verdict.needed} of your ${all.length} clouds.${promise}`;
}

const though = (volume) =>
  volume.verdict.unwritable.length ? ` But ${clouds(volume, volume.verdict.unwritable)}.` : "";

/** Why nothing moves. */
export function hold(transfers) {
  if (transfers.held === "metered") return "The network is metered. What you open is still fetched.";
  const until = transfers.paused_until ? ` until ${moment(transfers.paused_until)}` : "";
  return `Transfers are paused${until}. What you open is still fetched.`;
}
