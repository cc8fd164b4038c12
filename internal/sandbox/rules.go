package sandbox

import (
	"net/url"
	"strconv"
	"strings"
	"time"
)

// The fields of an enrollment request, in the order of the e-mandate document.
const (
	fPortalKey = iota
	fOrderNumber
	fAmount
	fPayerIDType
	fPayerID
	fPayerName
	fPayerEmail
	fPayerTelephoneNumber
	fPayerBankCode
	fPayerBankCodeHashed
	fFrequencyMode
	fMaxFrequency
	fApplicationReason
	fEffectiveDate
	fExpiryDate
	fMetadata
	fReturnURL
	fSuccessURL
	fFailedURL
	fMaintenanceURL
	fTerminationURL
	fLinkExpiredAt
	fPlatformID
	fChecksum
	enrollFields
)

// enrollRules say for each field its name, its rule and whether it is required. The document requires max_frequency and
// effective_date, but also has defaults for them, so they are optional here.
var enrollRules = [enrollFields]struct {
	name     string
	rule     rule
	required bool
}{
	fPortalKey:            {"portal_key", text, true},
	fOrderNumber:          {"order_number", text, true},
	fAmount:               {"amount", amount, true},
	fPayerIDType:          {"payer_id_type", integer, true},
	fPayerID:              {"payer_id", digits, true},
	fPayerName:            {"payer_name", text, true},
	fPayerEmail:           {"payer_email", text, true},
	fPayerTelephoneNumber: {"payer_telephone_number", digits, true},
	fPayerBankCode:        {"payer_bank_code", text, false},
	fPayerBankCodeHashed:  {"payer_bank_code_hashed", text, false},
	fFrequencyMode:        {"frequency_mode", text, true},
	fMaxFrequency:         {"max_frequency", integer, false},
	fApplicationReason:    {"application_reason", text, true},
	fEffectiveDate:        {"effective_date", date, false},
	fExpiryDate:           {"expiry_date", date, false},
	fMetadata:             {"metadata", text, false},
	fReturnURL:            {"return_url", link, false},
	fSuccessURL:           {"success_url", link, false},
	fFailedURL:            {"failed_url", link, false},
	fMaintenanceURL:       {"maintenance_url", link, false},
	fTerminationURL:       {"termination_url", link, false},
	fLinkExpiredAt:        {"link_expired_at", moment, false},
	fPlatformID:           {"platform_id", text, false},
	fChecksum:             {"checksum", text, false},
}

var enrollIndex = func() map[string]int {
	index := make(map[string]int, enrollFields)
	for i, field := range enrollRules {
		index[field.name] = i
	}
	return index
}()

// values are the texts of an enrollment request: strings trimmed, numbers as they were written, "" for a missing field.
type values [enrollFields]string

// parseEnrollment reads a body into its values. problems lists by field what breaks a rule; it is nil for a valid body.
func parseEnrollment(body string) (v values, problems map[string][]string) {
	report := func(field int, text string) {
		if problems == nil {
			problems = map[string][]string{}
		}
		name := enrollRules[field].name
		problems[name] = append(problems[name], "The "+strings.ReplaceAll(name, "_", " ")+" "+text)
	}
	for key, raw := range members(body) {
		field, known := enrollIndex[key]
		if !known || raw == "null" || raw == `""` {
			continue
		}
		value, problem := enrollRules[field].rule(raw)
		if v[field] = value; problem != "" {
			report(field, problem)
		}
	}
	for field, f := range enrollRules {
		if f.required && v[field] == "" && problems[f.name] == nil {
			report(field, "field is required.")
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

// appendCents appends hundredths as the shortest decimal number.
func appendCents(dst []byte, n int64) []byte {
	dst = strconv.AppendInt(dst, n/100, 10)
	switch rest := n % 100; {
	case rest == 0:
		return dst
	case rest%10 == 0:
		return append(dst, '.', byte('0'+rest/10))
	default:
		return append(dst, '.', byte('0'+rest/10), byte('0'+rest%10))
	}
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
