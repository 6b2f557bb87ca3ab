// Which lines of a text another one lacks.

const MOST = 400; // lines; longer texts are compared as sets of lines

/** [line, whether the other text lacks it there] for each line; nothing is marked without another text. */
export function differences(text, other) {
  const mine = lines(text);
  if (other === null) return mine.map((line) => [line, false]);
  const theirs = lines(other);
  if (mine.length > MOST || theirs.length > MOST) {
    const known = new Set(theirs);
    return mine.map((line) => [line, !known.has(line)]);
  }
  const common = longestCommon(mine, theirs);
  return mine.map((line, index) => [line, !common.has(index)]);
}

function lines(text) {
  const found = text.split("\n");
  if (found.at(-1) === "") found.pop();
  return found;
}

/** The indices of the lines of `a` that are in a longest common subsequence with `b`. */
function longestCommon(a, b) {
  const length = Array.from({ length: a.length + 1 }, () => new Uint16Array(b.length + 1));
  for (let i = a.length - 1; i >= 0; i -= 1) {
    for (let j = b.length - 1; j >= 0; j -= 1)
      length[i][j] = a[i] === b[j] ? length[i + 1][j + 1] + 1 : Math.max(length[i + 1][j], length[i][j + 1]);
  }
  const found = new Set();
  for (let i = 0, j = 0; i < a.length && j < b.length;) {
    if (a[i] === b[j]) {
      found.add(i);
      i += 1;
      j += 1;
    } else if (length[i + 1][j] >= length[i][j + 1]) i += 1;
    else j += 1;
  }
  return found;
}
