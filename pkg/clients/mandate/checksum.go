package mandate

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strings"

	"errand/pkg/clients"
)

// Checksum signs an enrollment: HMAC-SHA256 in lower-case hex over the trimmed values of nine fields, in the order of their names, joined
// with "|". The values are the very texts that are sent. Not shown by the upstream; assumed.
func Checksum(secret clients.Secret, e Enrollment) string {
	values := []string{
		string(e.Amount),
		e.ApplicationReason,
		e.FrequencyMode,
		e.OrderNumber,
		e.PayerEmail,
		digits(e.PayerID),
		string(e.PayerIDType),
		e.PayerName,
		digits(e.PayerTelephoneNumber),
	}
	return Sign(secret, values...)
}

// Sign is the HMAC-SHA256, in lower-case hex, over trimmed values joined with "|".
func Sign(secret clients.Secret, values ...string) string {
	for i := range values {
		values[i] = strings.TrimSpace(values[i])
	}
	mac := hmac.New(sha256.New, []byte(secret.Reveal()))
	mac.Write([]byte(strings.Join(values, "|")))
	return hex.EncodeToString(mac.Sum(nil))
}

// digits is the text of a JSON number or a JSON string.
func digits(raw json.RawMessage) string {
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return text // also for null, which is a missing value
	}
	return string(raw)
}
