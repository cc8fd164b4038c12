package sandbox

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// enroll accepts an enrollment: from then on it is listed, and its url opens a page on which the payer decides. v2 and v3
// have the same requests and answers.
func (s *Sandbox) enroll(c *call) answer {
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
	e := enrollment{order: v["order_number"], body: c.body, at: now.UnixMilli()}
	e.cents, _ = cents(v["amount"])
	e.expires = now.Add(time.Hour).UnixMilli()
	if v["link_expired_at"] != "" {
		at, _ := time.ParseInLocation(time.DateTime, v["link_expired_at"], s.zone)
		e.expires = at.UnixMilli()
	}
	n := s.registry.add(e)
	return answer{status: http.StatusOK, body: s.enrolled(n, &e, v, c.base)}
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
	year, month, day := time.UnixMilli(e.at).In(s.zone).Date()
	return time.Date(year, month, day+1, 0, 0, 0, 0, time.UTC).Format(time.DateOnly)
}

// The upstream does not show the format of its refusals; assumed, see docs/why/adr/0004-sandbox-assumptions.md.

func unprocessable(problems map[string][]string) answer {
	return answer{status: http.StatusUnprocessableEntity, body: object("error", problems)}
}

func forbidden(why string) answer {
	return answer{status: http.StatusForbidden, body: object("success", false, "message", why)}
}

// checksum is the HMAC-SHA256, in lower-case hex, over the trimmed values joined by "|", in the order of their field names;
// a missing one is empty. Not shown by the upstream; assumed, see docs/why/adr/0004-sandbox-assumptions.md.
func checksum(secret string, values ...string) string {
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write([]byte(strings.Join(values, "|")))
	return hex.EncodeToString(mac.Sum(nil))
}

// checksum is the expected value of the field checksum, over the texts as they were sent: 100 and 100.00 differ.
func (v values) checksum(secret string) string {
	return checksum(secret, v["amount"], v["application_reason"], v["frequency_mode"], v["order_number"], v["payer_email"],
		v["payer_id"], v["payer_id_type"], v["payer_name"], v["payer_telephone_number"])
}

// enrollRules say for each field of an enrollment request, in the order of the e-mandate document, its rule and whether it is
// required. The document requires max_frequency and effective_date, but also has defaults for them, so they are optional here.
var enrollRules = []struct {
	name     string
	rule     rule
	required bool
}{
	{"portal_key", text, true},
	{"order_number", text, true},
	{"amount", amount, true},
	{"payer_id_type", integer, true},
	{"payer_id", digits, true},
	{"payer_name", text, true},
	{"payer_email", text, true},
	{"payer_telephone_number", digits, true},
	{"payer_bank_code", text, false},
	{"payer_bank_code_hashed", text, false},
	{"frequency_mode", text, true},
	{"max_frequency", integer, false},
	{"application_reason", text, true},
	{"effective_date", timeAs(time.DateOnly, "must be a date, Y-m-d."), false},
	{"expiry_date", timeAs(time.DateOnly, "must be a date, Y-m-d."), false},
	{"metadata", text, false},
	{"return_url", link, false},
	{"success_url", link, false},
	{"failed_url", link, false},
	{"maintenance_url", link, false},
	{"termination_url", link, false},
	{"link_expired_at", timeAs(time.DateTime, "must match the format Y-m-d H:i:s."), false},
	{"platform_id", text, false},
	{"checksum", text, false},
}

// values are the texts of an enrollment request by field: strings trimmed, numbers as they were written.
type values map[string]string

// parseEnrollment reads a body into its values. problems lists by field what breaks a rule; it is empty for a valid body.
func parseEnrollment(body string) (v values, problems map[string][]string) {
	v, problems = values{}, map[string][]string{}
	sent := members(body)
	for _, f := range enrollRules {
		raw, problem := sent[f.name], ""
		if raw != "" {
			v[f.name], problem = f.rule(raw)
		}
		if f.required && v[f.name] == "" && problem == "" {
			problem = "field is required."
		}
		if problem != "" {
			problems[f.name] = []string{"The " + strings.ReplaceAll(f.name, "_", " ") + " " + problem}
		}
	}
	return v, problems
}

// rule returns the text of a JSON value, or what is wrong with it.
type rule func(raw string) (value, problem string)

func text(raw string) (string, string) {
	if raw[0] != '"' {
		return "", "must be a string."
	}
	return strings.TrimSpace(unquote(raw)), ""
}

// amount takes a JSON number. The document calls it an integer, but its bounds, 5.00 and 30000.00, have decimals.
func amount(raw string) (string, string) {
	if raw[0] != '-' && (raw[0] < '0' || raw[0] > '9') {
		return "", "must be a number."
	}
	hundredths, ok := cents(raw)
	if !ok {
		return "", "must be a number with at most two decimals."
	}
	if hundredths < 5_00 || hundredths > 30_000_00 {
		return "", "must be between 5.00 and 30000.00."
	}
	return raw, ""
}

// cents reads a plain number with at most two decimals, in hundredths.
func cents(raw string) (int64, bool) {
	whole, fraction, _ := strings.Cut(raw, ".")
	if len(fraction) > 2 || len(whole) > 12 {
		return 0, false
	}
	n, err := strconv.ParseInt(whole+(fraction + "00")[:2], 10, 64)
	return n, err == nil
}

func integer(raw string) (string, string) {
	if _, err := strconv.ParseInt(raw, 10, 64); err != nil {
		return "", "must be an integer."
	}
	return raw, ""
}

// digits takes a number or, as the examples send it, a string of digits.
func digits(raw string) (string, string) {
	value := raw
	if raw[0] == '"' {
		value = strings.TrimSpace(unquote(raw))
	}
	if strings.Trim(value, "0123456789") != "" {
		return "", "must be an integer or a string of digits."
	}
	return value, ""
}

func timeAs(layout, complaint string) rule {
	return func(raw string) (string, string) {
		value, problem := text(raw)
		if _, err := time.Parse(layout, value); err != nil && problem == "" {
			return "", complaint
		}
		return value, problem
	}
}

func link(raw string) (string, string) {
	value, problem := text(raw)
	if problem == "" && !isLink(value) {
		return "", "must be a URL address."
	}
	return value, problem
}

func isLink(value string) bool {
	u, err := url.Parse(value)
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != ""
}
