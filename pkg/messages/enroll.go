package messages

import (
	"encoding/json"
	"strings"
	"time"

	"errand/internal/wire"
)

// What is done when the fate of a call is not known, as on_unknown names it.
const (
	OnUnknownReport = "report" // the default: end as uncertain
	OnUnknownRetry  = "retry"  // enroll: call again once the transaction list proves that it was not taken
	OnUnknownResend = "resend" // send: send the batch again
)

// EnrollRequest is the body of mandate.enroll.requested.
type EnrollRequest struct {
	RequestID string    `json:"request_id,omitempty"`
	OnUnknown string    `json:"on_unknown,omitempty"` // report unless given
	NotBefore time.Time `json:"not_before,omitzero"`  // UTC; zero if not given
	GiveUpAt  time.Time `json:"give_up_at,omitzero"`  // UTC; zero if not given
	Enrollment
}

// MarshalJSON writes what Decode reads. To publish a request again keep its bytes: what was decoded has another fingerprint.
func (r EnrollRequest) MarshalJSON() ([]byte, error) {
	type plain EnrollRequest
	r.GiveUpAt, r.NotBefore = r.GiveUpAt.UTC(), r.NotBefore.UTC()
	if r.Amount != "" && r.PayerIDType != "" {
		return wire.Marshal(plain(r))
	}
	// A number that was forgotten would be written as 0, which is a payer_id_type like any other.
	return wire.Marshal(struct {
		plain
		Amount      *json.Number `json:"amount"`
		PayerIDType *json.Number `json:"payer_id_type"`
	}{plain(r), orNull(r.Amount), orNull(r.PayerIDType)})
}

func orNull(n json.Number) *json.Number {
	if n == "" {
		return nil
	}
	return &n
}

// Enrollment is the enrollment request of the e-mandate document.
type Enrollment struct {
	PortalKey            string          `json:"portal_key,omitempty"`
	OrderNumber          string          `json:"order_number"`
	Amount               json.Number     `json:"amount"`        // 100, 100.50; decoded, it has its shortest form: 100.5
	PayerIDType          json.Number     `json:"payer_id_type"` // integer
	PayerID              json.RawMessage `json:"payer_id"`      // a number, or a string of digits with its leading zeros: see Digits
	PayerName            string          `json:"payer_name"`
	PayerEmail           string          `json:"payer_email"`
	PayerTelephoneNumber json.RawMessage `json:"payer_telephone_number"` // as PayerID
	PayerBankCode        string          `json:"payer_bank_code,omitempty"`
	PayerBankCodeHashed  string          `json:"payer_bank_code_hashed,omitempty"`
	FrequencyMode        string          `json:"frequency_mode"`
	MaxFrequency         json.Number     `json:"max_frequency,omitempty"`
	ApplicationReason    string          `json:"application_reason"`
	EffectiveDate        string          `json:"effective_date,omitempty"` // 2006-01-02
	ExpiryDate           string          `json:"expiry_date,omitempty"`    // 2006-01-02
	Metadata             string          `json:"metadata,omitempty"`
	ReturnURL            string          `json:"return_url,omitempty"`
	SuccessURL           string          `json:"success_url,omitempty"`
	FailedURL            string          `json:"failed_url,omitempty"`
	MaintenanceURL       string          `json:"maintenance_url,omitempty"`
	TerminationURL       string          `json:"termination_url,omitempty"`
	LinkExpiredAt        string          `json:"link_expired_at,omitempty"` // 2006-01-02 15:04:05
	PlatformID           string          `json:"platform_id,omitempty"`
	Checksum             string          `json:"checksum,omitempty"`
}

const positive = "must be a whole number from 1 to 999999999"

var enrollFields = []field[EnrollRequest]{
	{"amount", required, func(r *EnrollRequest, v value) { r.Amount = v.amount() }},
	{"application_reason", required, func(r *EnrollRequest, v value) { r.ApplicationReason = v.line() }},
	{"checksum", optional, func(r *EnrollRequest, v value) { r.Checksum = v.line() }},
	{"effective_date", optional, func(r *EnrollRequest, v value) { r.EffectiveDate = v.date() }},
	{"expiry_date", optional, func(r *EnrollRequest, v value) { r.ExpiryDate = v.date() }},
	{"failed_url", optional, func(r *EnrollRequest, v value) { r.FailedURL = v.url() }},
	// The document names one code only: any other is for the upstream to judge.
	{"frequency_mode", required, func(r *EnrollRequest, v value) { r.FrequencyMode = v.line() }},
	{"give_up_at", optional, func(r *EnrollRequest, v value) { r.GiveUpAt = v.time(&v.form.meta.GiveUpAt) }},
	{"link_expired_at", optional, func(r *EnrollRequest, v value) {
		r.LinkExpiredAt = v.calendar(time.DateTime, "must be a date and time such as 2026-01-02 15:04:05")
	}},
	{"maintenance_url", optional, func(r *EnrollRequest, v value) { r.MaintenanceURL = v.url() }},
	{"max_frequency", optional, func(r *EnrollRequest, v value) { r.MaxFrequency = v.whole('1', positive) }},
	{"metadata", optional, func(r *EnrollRequest, v value) {
		r.Metadata = v.limited(wire.MaxMetadata, "must have at most 65536 characters")
	}},
	{"not_before", optional, func(r *EnrollRequest, v value) { r.NotBefore = v.time(&v.form.meta.NotBefore) }},
	{"on_unknown", optional, func(r *EnrollRequest, v value) {
		r.OnUnknown = v.choice("must be report or retry", OnUnknownReport, OnUnknownRetry)
	}},
	{"order_number", required, func(r *EnrollRequest, v value) { r.OrderNumber = v.orderNumber() }},
	{"payer_bank_code", optional, func(r *EnrollRequest, v value) { r.PayerBankCode = v.line() }},
	{"payer_bank_code_hashed", optional, func(r *EnrollRequest, v value) { r.PayerBankCodeHashed = v.line() }},
	{"payer_email", required, func(r *EnrollRequest, v value) { r.PayerEmail = v.email() }},
	{"payer_id", required, func(r *EnrollRequest, v value) { r.PayerID = v.digits() }},
	{"payer_id_type", required, func(r *EnrollRequest, v value) {
		r.PayerIDType = v.whole('0', "must be a whole number")
	}},
	{"payer_name", required, func(r *EnrollRequest, v value) { r.PayerName = v.line() }},
	{"payer_telephone_number", required, func(r *EnrollRequest, v value) { r.PayerTelephoneNumber = v.digits() }},
	{"platform_id", optional, func(r *EnrollRequest, v value) { r.PlatformID = v.line() }},
	// Filled in from the program's configuration when it is left out.
	{"portal_key", optional, func(r *EnrollRequest, v value) { r.PortalKey = v.line() }},
	{"request_id", optional, func(r *EnrollRequest, v value) { r.RequestID = v.requestID() }},
	{"return_url", optional, func(r *EnrollRequest, v value) { r.ReturnURL = v.url() }},
	{"success_url", optional, func(r *EnrollRequest, v value) { r.SuccessURL = v.url() }},
	{"termination_url", optional, func(r *EnrollRequest, v value) { r.TerminationURL = v.url() }},
}

// orderNumber is an order number. The upstream may drop a space at either end, and
// then lists it as another one.
func (v value) orderNumber() string {
	s := v.lineOf(wire.MaxOrderNumber, "must have at most 255 characters")
	return v.keep(s, strings.TrimSpace(s) == s, "must not begin or end with a space")
}

// EnrollStarted is the body of mandate.enroll.started: a call is about to be
// made, and its fate is known by the deadline or never.
type EnrollStarted struct {
	Common
	Deadline    Time   `json:"deadline"`
	Fingerprint string `json:"fingerprint"`
	OrderNumber string `json:"order_number"`
	Defaults
	AfterUnknown bool `json:"after_unknown,omitempty"`
}

// encoded writes what encoding/json would: with that of EnrollSucceeded it saves a twentieth of an enrollment's CPU time.
func (b EnrollStarted) encoded() ([]byte, error) {
	j := b.appendTo(make([]byte, 0, 384))
	j = append(b.Deadline.append(append(j, `,"deadline":"`...)), '"')
	j = appendMember(appendMember(j, "fingerprint", b.Fingerprint), "order_number", b.OrderNumber)
	if b.MaxFrequency != "" {
		j = append(append(j, `,"max_frequency":`...), b.MaxFrequency...)
	}
	if b.EffectiveDate != "" {
		j = appendMember(j, "effective_date", b.EffectiveDate)
	}
	if b.AfterUnknown {
		j = append(j, `,"after_unknown":true`...)
	}
	return append(j, '}'), nil
}

// Defaults are the values of fields the request left out, computed for each call, so that no date has passed.
type Defaults struct {
	MaxFrequency  json.Number `json:"max_frequency,omitempty"`
	EffectiveDate string      `json:"effective_date,omitempty"` // 2006-01-02
}

// EnrollSucceeded is the body of mandate.enroll.succeeded.
type EnrollSucceeded struct {
	Common
	APIVersion    string          `json:"api_version"` // v2 or v3
	OrderNumber   string          `json:"order_number"`
	Enrollment    json.RawMessage `json:"enrollment"`                // the enrollment response of the e-mandate document, whole
	LinkExpiredAt string          `json:"link_expired_at,omitempty"` // in the service's time zone; "": an hour after it was made
	AfterUnknown  bool            `json:"after_unknown,omitempty"`
	Fingerprint   string          `json:"fingerprint"`
}

// encoded writes what encoding/json would, where the enrollment is valid JSON.
func (b EnrollSucceeded) encoded() ([]byte, error) {
	j := b.appendTo(make([]byte, 0, 384+len(b.Enrollment)))
	j = appendMember(appendMember(j, "api_version", b.APIVersion), "order_number", b.OrderNumber)
	j, err := appendRaw(append(j, `,"enrollment":`...), b.Enrollment)
	if b.LinkExpiredAt != "" {
		j = appendMember(j, "link_expired_at", b.LinkExpiredAt)
	}
	if b.AfterUnknown {
		j = append(j, `,"after_unknown":true`...)
	}
	return append(appendMember(j, "fingerprint", b.Fingerprint), '}'), err
}

// EnrollUncertain is the body of mandate.enroll.uncertain: a call was made and
// what came of it is not known.
type EnrollUncertain struct {
	Common
	Reason       Reason            `json:"reason"`
	Message      string            `json:"message"`
	OrderNumber  string            `json:"order_number"`
	Evidence     []json.RawMessage `json:"evidence"` // the transaction records under the order number; [] when there are none
	Fingerprint  string            `json:"fingerprint"`
	AfterUnknown bool              `json:"after_unknown,omitempty"`
}

// encoded cuts the texts and writes nil evidence as [].
func (b EnrollUncertain) encoded() ([]byte, error) {
	b.Message, b.OrderNumber = wire.Cut(b.Message), wire.Cut(b.OrderNumber)
	b.Evidence = listed(b.Evidence)
	return wire.Marshal(b)
}

// EnrollResolved is the body of mandate.enroll.resolved: what became of an enrollment
// that ended uncertain.
type EnrollResolved struct {
	Common
	Outcome     State             `json:"outcome"` // succeeded or failed
	By          string            `json:"by"`
	OrderNumber string            `json:"order_number"`
	Evidence    []json.RawMessage `json:"evidence"` // the transaction records under the order number
	Fingerprint string            `json:"fingerprint"`
}

// encoded cuts the order number and writes nil evidence as [].
func (b EnrollResolved) encoded() ([]byte, error) {
	b.OrderNumber = wire.Cut(b.OrderNumber)
	b.Evidence = listed(b.Evidence)
	return wire.Marshal(b)
}
