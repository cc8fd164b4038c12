// Sends one invoice by mail and says what became of it, as a service in another repository does it.
//
//	node invoice.js ID ADDRESS [SUBJECT]
//
// NATS_URL, NATS_USER and NATS_PASSWORD say how to reach NATS.
import { createHash } from "node:crypto";
import { jetstream } from "@nats-io/jetstream";
import { connect } from "@nats-io/transport-node";

// `npm run types` makes the types of docs/schemas, or SCHEMAS; `npm run check` looks for mistyped fields by them.
/** @typedef {import("./types/mail.send.requested.js").MailSendRequested & { request_id: string }} Request */
/** @typedef {import("./types/mail.send.failed.js").MailSendFailed & { outcome?: string }} Outcome accepted, partial and uncertain have the same fields */

/**
 * Publishes a request and returns its final event, or one that was stored before. Other operations go the same way.
 * @param {import("@nats-io/jetstream").JetStreamClient} js
 * @param {Request} request
 */
async function send(js, request) {
  if (!/^[A-Za-z0-9_-]{1,64}$/.test(request.request_id)) throw new Error("request_id must be 1 to 64 letters, digits, _ or -");
  const fingerprint = createHash("sha256").update(canonical({ ...request, request_id: undefined })).digest("hex");
  // The same request again is a duplicate for two minutes; a correction under the same id is none.
  const msgID = `mail.send/${request.request_id}/${fingerprint}`;
  const ack = await js.publish("mail.send.requested", JSON.stringify(request), { msgID });
  if (ack.duplicate) console.log("duplicate: it was published a moment ago");

  // A conflict is reported under the request's position, everything else under its id. The consumer begins
  // with the first event, so that nothing is missed; it is gone when the loop ends.
  const position = `${ack.stream}-${ack.seq}`;
  const filterSubjects = [`mail.send.*.${request.request_id}`, `mail.send.*.${position}`];
  const consumer = await js.consumers.get("MAIL_EVENTS", { filter_subjects: filterSubjects });
  const events = await consumer.consume();
  const timeout = setTimeout(() => events.stop(), 60_000);
  let outcome;
  try {
    for await (const event of events) {
      const state = event.subject.split(".")[2];
      const body = /** @type {Outcome} */ (event.json());
      // The id may have a history of other contents: what this request corrects, or conflicts with. An outcome
      // counts unless it is followed by another one, or the request is run again.
      outcome = isFinal(state) && body.fingerprint === fingerprint ? { state, body } : undefined;
      if (outcome && event.info.pending === 0) return outcome;
    }
  } finally {
    clearTimeout(timeout);
    await events.close();
  }
  throw new Error(`no outcome of ${request.request_id} in a minute: it goes on, look again later`);
}

/** @param {string} state */
function isFinal(state) {
  return ["accepted", "partial", "failed", "uncertain", "resolved"].includes(state);
}

/**
 * JSON with sorted keys, as docs/use/reference.md defines the fingerprint.
 * @param {any} value
 * @returns {string}
 */
function canonical(value) {
  if (Array.isArray(value)) return `[${value.map(canonical).join(",")}]`;
  if (value === null || typeof value !== "object") return JSON.stringify(value);
  const keys = Object.keys(value).filter((key) => value[key] !== undefined).sort();
  return `{${keys.map((key) => `${JSON.stringify(key)}:${canonical(value[key])}`).join(",")}}`;
}

const [id, address, subject = "Your invoice"] = process.argv.slice(2);
if (!id || !address) {
  console.error("usage: node invoice.js ID ADDRESS [SUBJECT]");
  process.exit(2);
}
const user = process.env.NATS_USER;
const nc = await connect({
  servers: process.env.NATS_URL ?? "nats://127.0.0.1:4222",
  user,
  pass: process.env.NATS_PASSWORD,
  inboxPrefix: `_INBOX_${user}`,
  maxReconnectAttempts: -1,
});
try {
  const { state, body } = await send(jetstream(nc), {
    request_id: id, // belongs to what is done: published twice, it is sent once
    to: [address],
    subject,
    content: "Dear customer, …",
  });
  switch (state === "resolved" ? body.outcome : state) {
    case "accepted":
      console.log("sent");
      break;
    case "failed":
      if (body.reason === "conflict") console.error(`conflict: ${body.conflicts_with} was published with other contents`);
      else console.error(`failed: ${body.reason}: ${body.message}`);
      process.exitCode = 1;
      break;
    case "partial": // one recipient is accepted or not: this is for lists
      console.log(`partial: ${body.accepted} of ${body.recipients}`);
      process.exitCode = 3;
      break;
    case "uncertain": // mail.send.resolved may follow: a durable consumer hears it
      console.log("uncertain: do not send it again under another id");
      process.exitCode = 3;
  }
} catch (/** @type {any} */ error) {
  // After a TimeoutError it is perhaps stored; the same again is safe.
  console.error(error.name === "JetStreamNotEnabled" ? "not published: no stream takes that subject: is it mistyped, or may this user not publish it?" : String(error));
  process.exitCode = 1;
} finally {
  await nc.close();
}
