"""Sends one invoice by mail and says what became of it, as a service in another repository does it.

    python3 invoice.py ID ADDRESS [SUBJECT]

It needs nats-py. NATS_URL, NATS_USER and NATS_PASSWORD say how to reach NATS.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import re
import sys
from typing import TYPE_CHECKING, Any, cast

import nats
import nats.errors

if TYPE_CHECKING:  # make_types.py makes them of docs/schemas
    from errand_types import MailSendFailed, MailSendRequested

FINAL = {"accepted", "partial", "failed", "uncertain", "resolved"}


async def send(nc: Any, request: MailSendRequested) -> tuple[str, MailSendFailed]:
    """Publishes a request and returns its final state and event, or what was stored before. Other operations go the same way."""
    request_id = request.get("request_id") or ""
    if not re.fullmatch("[A-Za-z0-9_-]{1,64}", request_id):
        raise ValueError("request_id must be 1 to 64 letters, digits, _ or -")
    contents = {key: value for key, value in request.items() if key != "request_id"}
    # docs/use/ids-and-corrections.md: it needs more where contents have numbers other than whole ones
    canonical = json.dumps(contents, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    fingerprint = hashlib.sha256(canonical.encode()).hexdigest()
    # The same request again is a duplicate for two minutes; a correction under the same id is none.
    headers = {"Nats-Msg-Id": f"mail.send/{request_id}/{fingerprint}"}
    answer = await nc.request("mail.send.requested", json.dumps(request).encode(), timeout=5, headers=headers)
    ack = json.loads(answer.data)
    if "error" in ack:
        raise RuntimeError(ack["error"]["description"])
    if ack.get("duplicate"):
        print("duplicate: it was published a moment ago")
    # A conflict is reported under the request's position, everything else under its id.
    position = f"{ack['stream']}-{ack['seq']}"
    for pause in [0.05] * 20 + [0.5] * 118:
        for name in (position, request_id):
            query = json.dumps({"last_by_subj": f"mail.send.*.{name}"}).encode()
            event = await nc.request("$JS.API.DIRECT.GET.MAIL_EVENTS", query, timeout=5)
            subject = (event.headers or {}).get("Nats-Subject", "")  # none: there is no event yet
            if not subject:
                continue
            state, body = subject.split(".")[2], json.loads(event.data)
            # The id may have a history of other contents, which this request corrects, or conflicts with.
            if state in FINAL and body.get("fingerprint") == fingerprint:
                return state, cast("MailSendFailed", body)
        await asyncio.sleep(pause)
    raise TimeoutError(f"no outcome of {request_id} in a minute: it goes on, look again later")


async def main(request_id: str, address: str, title: str = "Your invoice") -> int:
    user = os.environ.get("NATS_USER")
    nc = await nats.connect(
        os.environ.get("NATS_URL", "nats://127.0.0.1:4222"),
        user=user, password=os.environ.get("NATS_PASSWORD"), inbox_prefix=f"_INBOX_{user}", max_reconnect_attempts=-1,
    )
    try:
        # The id belongs to what is done: published twice, it is sent once.
        state, body = await send(nc, {"request_id": request_id, "to": [address], "subject": title, "content": "Dear customer, …"})
    except nats.errors.NoRespondersError:
        print("not published: no stream takes that subject: is it mistyped, or may this user not publish it?", file=sys.stderr)
        return 1
    except (nats.errors.TimeoutError, TimeoutError, ValueError, RuntimeError) as error:
        # After a timeout it is perhaps stored; the same again is safe.
        print(error, file=sys.stderr)
        return 1
    finally:
        await nc.close()
    if state == "resolved":
        state = str(cast("dict[str, Any]", body)["outcome"])
    if state == "accepted":
        print("sent")
        return 0
    if state == "failed":
        what = f"{body['conflicts_with']} was published with other contents" if "conflicts_with" in body else body.get("message")
        print(f"{'conflict' if 'conflicts_with' in body else 'failed'}: {body.get('reason')}: {what}", file=sys.stderr)
        return 1
    # partial is for lists. uncertain: mail.send.resolved may follow, and a durable consumer hears it.
    print(f"{state}: {body['accepted']} of {body['recipients']}; do not send it again under another id")
    return 3


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit("usage: python3 invoice.py ID ADDRESS [SUBJECT]")
    sys.exit(asyncio.run(main(*sys.argv[1:4])))
