// Control characters and marks that change the direction of text could make a key or a name look like another one.
const UNSEEN = /[\u0000-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g;

/** Text from others, safe to show: characters that cannot be seen are written as `\u{202e}`. */
export function visible(text: string): string {
  return text.replace(UNSEEN, (char) => `\\u{${char.codePointAt(0)!.toString(16)}}`);
}

/** A text of the server with a capital first letter; a text that begins with a name, such as `rate: …`, stays as it is. */
export function sentence(text: string): string {
  return /^[a-z]+[ ,;]/.test(text) ? text[0]!.toUpperCase() + text.slice(1) : text;
}

/** JSON in which characters that cannot be seen are escaped: on a screen, and for a program that reads it. */
export function json(value: unknown): string {
  return JSON.stringify(value).replace(UNSEEN, (char) => `\\u${char.charCodeAt(0).toString(16).padStart(4, '0')}`);
}

/** One word of a POSIX shell. */
export function quote(word: string): string {
  return /^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", `'\\''`)}'`;
}

/** A request that a token of the app can make, as a curl line. A test has the list of these. */
export function curl(method: string, path: string, body?: unknown, origin = location.origin): string {
  const words = ['curl'];
  if (method !== 'GET') words.push('-X', method);
  words.push('-H', '"authorization: Bearer $SLUICEGATE_TOKEN"');
  if (body !== undefined) words.push('-H', quote('content-type: application/json'), '-d', quote(json(body)));
  words.push(quote(origin + path));
  return words.join(' ');
}
