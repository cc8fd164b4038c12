package messages

import "encoding/json"

// SendStarted is the body of mail.send.started, stored again with a new deadline
// while batches remain.
type SendStarted struct {
	Common
	Deadline    Time   `json:"deadline"`
	Fingerprint string `json:"fingerprint"`
	Recipients  int    `json:"recipients"` // valid and distinct
	Batches     int    `json:"batches"`
	// BatchSize is pinned by the first started event of the request, so that
	// the same request always gives the same batches.
	BatchSize int `json:"batch_size"`
}

// ListedInvalid is how many invalid addresses an outcome lists; all are counted.
const ListedInvalid = 100

// SendOutcome is the body of mail.send.accepted, partial, failed and uncertain.
type SendOutcome struct {
	Common
	Recipients     int                 `json:"recipients"` // valid and distinct
	Accepted       int                 `json:"accepted"`   // recipients the upstream took
	Batches        int                 `json:"batches"`
	Duplicates     int                 `json:"duplicates"`
	InvalidCount   int                 `json:"invalid_count"`
	Invalid        []InvalidAddress    `json:"invalid"` // the first 100
	Unsettled      []Unsettled         `json:"unsettled,omitempty"`
	UnsettledCount int                 `json:"unsettled_count,omitempty"`
	Reason         Reason              `json:"reason,omitempty"`
	Message        string              `json:"message,omitempty"`
	HTTPStatus     int                 `json:"http_status,omitempty"`
	Fields         map[string][]string `json:"fields,omitempty"`
	ConflictsWith  string              `json:"conflicts_with,omitempty"`
	Fingerprint    string              `json:"fingerprint"`
	AfterUnknown   bool                `json:"after_unknown,omitempty"`
}

// InvalidAddress is a recipient that was left out, and why.
type InvalidAddress struct {
	Address string `json:"address"` // as the request has it, cut to 500 characters
	Reason  string `json:"reason"`  // as ParseRecipient gives it
}

// Unsettled is a batch that was not accepted whole.
type Unsettled struct {
	Batch      int    `json:"batch"` // from 1
	First      int    `json:"first"` // index into the recipients, from 0
	Count      int    `json:"count"`
	State      State  `json:"state"`
	Reason     Reason `json:"reason"`
	HTTPStatus int    `json:"http_status,omitempty"`
	Message    string `json:"message,omitempty"`
}

// MarshalJSON cuts the texts and the list of invalid addresses.
func (b SendOutcome) MarshalJSON() ([]byte, error) {
	type plain SendOutcome
	b.Message, b.ConflictsWith = Cut(b.Message), Cut(b.ConflictsWith)
	b.Fields = cutFields(b.Fields)
	invalid := make([]InvalidAddress, min(len(b.Invalid), ListedInvalid))
	for i := range invalid {
		invalid[i] = InvalidAddress{Address: Cut(b.Invalid[i].Address), Reason: Cut(b.Invalid[i].Reason)}
	}
	b.Invalid = invalid
	unsettled := make([]Unsettled, len(b.Unsettled))
	for i, u := range b.Unsettled {
		u.Message = Cut(u.Message)
		unsettled[i] = u
	}
	b.Unsettled = unsettled
	if b.Reason == "" {
		return marshal(plain(b))
	}
	if b.Fields == nil {
		b.Fields = map[string][]string{}
	}
	return marshal(struct { // with a reason, these are there even when empty
		plain
		Unsettled  []Unsettled         `json:"unsettled"`
		HTTPStatus int                 `json:"http_status"`
		Fields     map[string][]string `json:"fields"`
	}{plain(b), b.Unsettled, b.HTTPStatus, b.Fields})
}

// BatchBody is the body of mail.batch.started, accepted, refused, deferred and
// uncertain.
type BatchBody struct {
	Common
	Batch      int    `json:"batch"` // from 1
	First      int    `json:"first"` // index into the recipients, from 0
	Count      int    `json:"count"`
	Deadline   *Time  `json:"deadline,omitempty"`   // started only: of the call
	NotBefore  *Time  `json:"not_before,omitempty"` // deferred only
	Accepted   *int   `json:"accepted,omitempty"`   // accepted only, there even when 0
	Reason     Reason `json:"reason,omitempty"`
	HTTPStatus int    `json:"http_status,omitempty"`
	Message    string `json:"message,omitempty"`
	// AfterUnknown: a call of unknown fate was made before.
	AfterUnknown bool `json:"after_unknown,omitempty"`
	// HeldCount is how often the batch was held while others succeeded in
	// between.
	HeldCount int `json:"held_count,omitempty"`
}

// MarshalJSON cuts the message.
func (b BatchBody) MarshalJSON() ([]byte, error) {
	type plain BatchBody
	b.Message = Cut(b.Message)
	return marshal(plain(b))
}

// AccountReported is the body of mail.account.reported.
type AccountReported struct {
	Common
	// Account is the account information of the email document, whole.
	Account     json.RawMessage `json:"account"`
	Fingerprint string          `json:"fingerprint"`
}

// DeliveryBody is the body of mail.delivery.<status>: one state a log entry was
// seen in.
type DeliveryBody struct {
	Common
	EventID string          `json:"event_id"`
	Entry   json.RawMessage `json:"entry"` // the log entry of the email document
	SMTP    SMTP            `json:"smtp"`
	Match   Match           `json:"match"`
	// Recipient goes into the header Errand-Recipient: <batch>.<recipient> where the
	// entry is matched, both as in mail.log.sent.
	Recipient string `json:"-"`
}

// SMTP is what the receiving server's reply says: RFC 5321 code, 0 when it
// gives none, and RFC 3463 enhanced code, "" when it gives none.
type SMTP struct {
	Code     int    `json:"code"`
	Enhanced string `json:"enhanced"`
}

// Match ties a log entry to a request.
type Match struct {
	Confidence Confidence `json:"confidence"`
	Batch      int        `json:"batch,omitempty"`
	Candidates []string   `json:"candidates,omitempty"` // request ids, when ambiguous
}

// Confidence says how sure a match is.
type Confidence string

// The confidences.
const (
	MatchExact     Confidence = "exact"
	MatchUnique    Confidence = "unique"
	MatchAmbiguous Confidence = "ambiguous"
	MatchNone      Confidence = "none"
)
