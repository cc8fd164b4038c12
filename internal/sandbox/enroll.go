package sandbox

import (
	"encoding/json"
	"net/http"
	"strings"
	"time"
)

func (s *Sandbox) enrollV2(c *call) answer { return s.enroll(c, 2) }
func (s *Sandbox) enrollV3(c *call) answer { return s.enroll(c, 3) }

// enroll accepts an enrollment: from then on it is listed, and its url opens a page on which the payer decides. v2 and v3
// have the same requests and answers.
func (s *Sandbox) enroll(c *call, version uint8) answer {
	v, problems := parseEnrollment(c.body)
	if problems != nil {
		return unprocessable(problems)
	}
	if s.o.ChecksumSecret != "" && v[fChecksum] != "" && v[fChecksum] != v.checksum(s.o.ChecksumSecret) {
		return unprocessable(map[string][]string{"checksum": {"The checksum is invalid."}})
	}
	if !credentialMatches(v[fPortalKey], s.o.PortalKey) {
		return forbidden("the portal key is not known")
	}
	if c.ChannelDisabled {
		return forbidden("the account is not enabled for the direct debit payment channel")
	}

	now := time.Now()
	e := enrollment{order: v[fOrderNumber], body: c.body, at: now.UnixMilli(), version: version}
	if s.o.Lean {
		e.order, e.body = strings.Clone(e.order), ""
	}
	e.cents, _ = cents(v[fAmount])
	e.expires = now.Add(time.Hour).UnixMilli()
	if v[fLinkExpiredAt] != "" {
		at, _ := time.ParseInLocation(time.DateTime, v[fLinkExpiredAt], s.zone)
		e.expires = at.UnixMilli()
	}
	n := s.registry.add(e)
	return answer{status: c.EnrollStatus, body: s.appendEnrolled(make([]byte, 0, 640), n, &e, &v, c.base)}
}

// appendEnrolled appends the document's enrollment response.
func (s *Sandbox) appendEnrolled(dst []byte, n int, e *enrollment, v *values, base string) []byte {
	dst = append(dst, '{')
	dst = appendFields(dst, "payer_name", v[fPayerName])
	dst = append(append(dst, `"payer_id_type":`...), v[fPayerIDType]...)
	dst = append(dst, ',')
	dst = appendFields(dst,
		"payer_id", v[fPayerID],
		"payer_email", v[fPayerEmail],
		"payer_telephone_number", v[fPayerTelephoneNumber],
		"order_number", v[fOrderNumber])
	dst = appendCents(append(dst, `"amount":`...), e.cents)
	dst = append(dst, ',')
	dst = appendFields(dst,
		"application_type", "Enrollment",
		"application_reason", v[fApplicationReason],
		"frequency_mode", v[fFrequencyMode],
		"effective_date", s.effective(e, v),
		"expiry_date", v[fExpiryDate],
		"url", base+"/enroll/"+s.token(n))
	dst[len(dst)-1] = '}' // in place of the last comma
	return dst
}

// effective is the requested effective date, or the day after the enrollment.
func (s *Sandbox) effective(e *enrollment, v *values) string {
	if v[fEffectiveDate] != "" {
		return v[fEffectiveDate]
	}
	return time.UnixMilli(e.at).In(s.zone).AddDate(0, 0, 1).Format(time.DateOnly)
}

// The upstream does not show the format of its refusals; assumed, see docs/why/adr/0004-sandbox-assumptions.md.

func unprocessable(problems map[string][]string) answer {
	body, _ := json.Marshal(map[string]any{"error": problems}) // strings always marshal
	return answer{status: http.StatusUnprocessableEntity, body: body}
}

func forbidden(why string) answer {
	return answer{status: http.StatusForbidden, body: append(appendText([]byte(`{"success":false,"message":`), why), '}')}
}
