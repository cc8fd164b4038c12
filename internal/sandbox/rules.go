package sandbox

import (
	"net/url"
	"strconv"
	"strings"
	"time"
)

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
	{"effective_date", date, false},
	{"expiry_date", date, false},
	{"metadata", text, false},
	{"return_url", link, false},
	{"success_url", link, false},
	{"failed_url", link, false},
	{"maintenance_url", link, false},
	{"termination_url", link, false},
	{"link_expired_at", moment, false},
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

func date(raw string) (string, string) {
	return layout(raw, time.DateOnly, "must be a date, Y-m-d.")
}

func moment(raw string) (string, string) {
	return layout(raw, time.DateTime, "must match the format Y-m-d H:i:s.")
}

func layout(raw, form, complaint string) (string, string) {
	value, problem := text(raw)
	if _, err := time.Parse(form, value); err != nil && problem == "" {
		return "", complaint
	}
	return value, problem
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
