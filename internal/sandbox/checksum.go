package sandbox

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

// checksum is the HMAC-SHA256, in lower-case hex, over the trimmed values
// joined by a bar. The values go in the order of their field names; one that is
// missing is empty. Not shown by the upstream; assumed, see docs/sandbox.md.
func checksum(secret string, values ...string) string {
	trimmed := make([]string, len(values))
	for i, value := range values {
		trimmed[i] = strings.TrimSpace(value)
	}
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write([]byte(strings.Join(trimmed, "|")))
	return hex.EncodeToString(mac.Sum(nil))
}

// checksum is what the enrollment's own field must hold: over the texts as
// they were sent, 100 and 100.00 being different ones.
func (v *values) checksum(secret string) string {
	return checksum(secret, v[fAmount], v[fApplicationReason], v[fFrequencyMode], v[fOrderNumber], v[fPayerEmail],
		v[fPayerID], v[fPayerIDType], v[fPayerName], v[fPayerTelephoneNumber])
}
