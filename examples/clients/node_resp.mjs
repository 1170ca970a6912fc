// Asks over RESP on a socket, without a package. Replies come in the order of the commands.
import { createConnection } from "node:net";

const [host, port] = process.env.SLUICEGATE_RESP.split(":");
const socket = createConnection({ host, port }).setNoDelay();
const waiting = [];
let rest = ""; // latin1: a character is a byte, as in the lengths of RESP
socket.setEncoding("latin1").on("data", (text) => {
  rest += text;
  for (let reply; (reply = parse(rest)) !== null; rest = rest.slice(reply.end)) waiting.shift()(reply.value);
});

/** One reply at `at` and where it ends, or null if it is not all there. */
function parse(text, at = 0) {
  const line = text.indexOf("\r\n", at);
  if (line < 0) return null;
  const [type, head, end] = [text[at], text.slice(at + 1, line), line + 2];
  if (type === ":") return { value: Number(head), end };
  if (type === "+" || type === "-") return { value: type + head, end };
  if (type === "$") {
    if (head === "-1") return { value: null, end };
    const close = end + Number(head);
    return text.length < close + 2 ? null : { value: text.slice(end, close), end: close + 2 };
  }
  const value = [];
  let next = end;
  for (let i = 0; i < Number(head); i++) {
    const member = parse(text, next);
    if (member === null) return null;
    value.push(member.value);
    next = member.end;
  }
  return { value, end: next };
}

function command(...words) {
  const parts = words.map((word) => `$${Buffer.byteLength(word)}\r\n${word}\r\n`);
  socket.write(`*${words.length}\r\n${parts.join("")}`);
  return new Promise((resolve) => waiting.push(resolve));
}

const replies = await Promise.all(Array.from({ length: 6 }, () => command("SG.CHECK", "login", "node")));
console.log(`${replies.filter(([code]) => code === 1).length} of 6 passed`);
socket.end();
