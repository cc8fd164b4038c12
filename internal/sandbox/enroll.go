package sandbox

import (
	"encoding/json"
	"net/http"
	"time"
)

func (s *Sandbox) enrollV2(c *call) answer { return s.enroll(c, 2) }
func (s *Sandbox) enrollV3(c *call) answer { return s.enroll(c, 3) }

// enroll accepts an enrollment: from then on it is listed, and its url opens a page on which the payer decides. v2 and v3
// have the same requests and answers.
func (s *Sandbox) enroll(c *call, version uint8) answer {
	v, problems := parseEnrollment(c.body)
	if len(problems) > 0 {
		return unprocessable(problems)
	}
	if s.o.ChecksumSecret != "" && v["checksum"] != "" && v["checksum"] != v.checksum(s.o.ChecksumSecret) {
		return unprocessable(map[string][]string{"checksum": {"The checksum is invalid."}})
	}
	if !credentialMatches(v["portal_key"], s.o.PortalKey) {
		return forbidden("the portal key is not known")
	}
	if c.ChannelDisabled {
		return forbidden("the account is not enabled for the direct debit payment channel")
	}

	now := time.Now()
	e := enrollment{order: v["order_number"], body: c.body, at: now.UnixMilli(), version: version}
	e.cents, _ = cents(v["amount"])
	e.expires = now.Add(time.Hour).UnixMilli()
	if v["link_expired_at"] != "" {
		at, _ := time.ParseInLocation(time.DateTime, v["link_expired_at"], s.zone)
		e.expires = at.UnixMilli()
	}
	n := s.registry.add(e)
	return answer{status: c.EnrollStatus, body: s.enrolled(n, &e, v, c.base)}
}

// enrolled is the document's enrollment response.
func (s *Sandbox) enrolled(n int, e *enrollment, v values, base string) []byte {
	return object(
		"payer_name", v["payer_name"],
		"payer_id_type", json.RawMessage(v["payer_id_type"]),
		"payer_id", v["payer_id"],
		"payer_email", v["payer_email"],
		"payer_telephone_number", v["payer_telephone_number"],
		"order_number", v["order_number"],
		"amount", e.amount(),
		"application_type", "Enrollment",
		"application_reason", v["application_reason"],
		"frequency_mode", v["frequency_mode"],
		"effective_date", s.effective(e, v),
		"expiry_date", v["expiry_date"],
		"url", base+"/enroll/"+s.token(n))
}

// effective is the requested effective date, or the day after the enrollment.
func (s *Sandbox) effective(e *enrollment, v values) string {
	if v["effective_date"] != "" {
		return v["effective_date"]
	}
	return time.UnixMilli(e.at).In(s.zone).AddDate(0, 0, 1).Format(time.DateOnly)
}

// The upstream does not show the format of its refusals; assumed, see docs/why/adr/0004-sandbox-assumptions.md.

func unprocessable(problems map[string][]string) answer {
	return answer{status: http.StatusUnprocessableEntity, body: object("error", problems)}
}

func forbidden(why string) answer {
	return answer{status: http.StatusForbidden, body: object("success", false, "message", why)}
}
